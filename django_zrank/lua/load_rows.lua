-- uses: clock, server, keys, ties, memberships
-- Add rows of a rebuild's snapshot to the shadow, except members that were written since the rebuild began.
--
-- KEYS  shadow    root of the generation that the rebuild is filling: sorted set of all members, and of the names of all
--                 that belongs to it
--       recent    sorted set, member -> version of its newest write; since start_rebuild.lua, none is forgotten
--       meta      hash of the index
-- ARGV  building  the generation being built
--       width     of the tie bytes
--       memberships  '1' where members have memberships
--       dense     '1' where distinct values are counted
--       rows      JSON, score and member of each row in turn, as texts; where members have memberships, also how
--                 many bytes of 'packed' are its membership. 3,500 rows at most. One text costs the server and its client
--                 less than thousands of arguments do
--       packed    all memberships, one after the other
-- Returns 1, or 0 with nothing written where another rebuild began, this one was taken for dead, or the server
--         restarted and may have lost rows, or evicted some.
-- Cost  O(rows * (1 + rankings that a member stands in) * log(size)); rows sorted by score insert fastest.

local shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local building, width, memberships, dense, rows, packed = unpack(ARGV)
width, memberships, dense = tonumber(width), memberships == '1', dense == '1'

if not holds(meta, 'building', building) then
  return 0
end
-- Keys that were evicted would not be missed after this: rows that were loaded, or the versions that later rows give
-- way to.
local state = redis.call('HMGET', meta, 'filled', 'guarded')
if is_evicted(shadow, state[1]) or state[2] == '1' and redis.call('EXISTS', recent) == 0 then
  return 0
end
redis.call('HSET', meta, 'seen', integer(clock()))

rows = cjson.decode(rows)
local stride = memberships and 3 or 2
local written = {}
if redis.call('EXISTS', recent) == 1 then
  local members = {}
  for i = 2, #rows, stride do
    members[#members + 1] = rows[i]
  end
  written = redis.call('ZMSCORE', recent, unpack(members))
elseif not memberships and not dense then
  redis.call('ZADD', shadow, unpack(rows))
  redis.call('HSET', meta, 'filled', present(shadow))
  return 1
end

-- One command for each key, not for each row: of every key, what it is to be told.
local told = {}
local function tell(key, first, second)
  local list = told[key]
  if not list then
    list = {}
    told[key] = list
  end
  list[#list + 1], list[#list + 2] = first, second
end

-- Those who are new at one score, with the same tie bytes, are counted together. Told twice, they are not new.
local function count_up(key, list)
  local alike = {}
  for i = 1, #list, 2 do
    local score, stored = list[i], list[i + 1]
    local tie = memberships and read_membership(stored, width) or ''
    local value = value_of(tie, score)
    local same = alike[value] or {}
    alike[value] = same
    same[#same + 1], same[#same + 2] = score, stored
  end
  for value, same in pairs(alike) do
    local added = redis.call('ZADD', key, unpack(same))
    if added > 0 then
      redis.call('HINCRBY', counts_key(key), value, added)
      redis.call('ZADD', values_key(key), same[1], value)
    end
  end
end

local rankings, at = {[shadow] = ''}, 1
for row = 1, #rows / stride do
  local score, member, length = unpack(rows, (row - 1) * stride + 1, row * stride)
  local membership = ''
  if memberships then
    membership = string.sub(packed, at, at + length - 1)
    at = at + length
  end
  if not written[row] then
    local stored = member
    if membership ~= '' then
      local tie, names = read_membership(membership, width)
      stored = tie .. member
      tell(memberships_key(shadow), member, membership)
      for name in string.gmatch(names, '%Z+') do
        local key = shadow .. ':' .. name
        rankings[key] = name
        tell(key, score, stored)
      end
    end
    tell(shadow, score, stored)
  end
end
for key, list in pairs(told) do
  local name = rankings[key]
  if name and name ~= '' and redis.call('ZADD', names_key(shadow), 0, name) == 0
      and redis.call('EXISTS', key) == 0 then
    return 0
  end
  if not name then
    redis.call('HSET', key, unpack(list))
  elseif dense then
    count_up(key, list)
  else
    redis.call('ZADD', key, unpack(list))
  end
end
redis.call('HSET', meta, 'filled', present(shadow))
return 1
