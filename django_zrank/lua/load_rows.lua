-- uses: clock, server, memberships
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
local state, is_guarded = redis.call('HMGET', meta, 'filled', 'guarded'), redis.call('EXISTS', recent) == 1
if is_evicted(shadow, state[1]) or state[2] == '1' and not is_guarded then
  return 0
end
redis.call('HSET', meta, 'seen', integer(clock()))

rows = cjson.decode(rows)
if not is_guarded and not memberships and not dense then
  redis.call('ZADD', shadow, unpack(rows))
  redis.call('HSET', meta, 'filled', present(shadow))
  return 1
end

local stride = memberships and 3 or 2
local members = {}
for i = 2, #rows, stride do
  members[#members + 1] = rows[i]
end
local written = is_guarded and read_all('ZMSCORE', recent, members) or {}
local kept, scores, stands, at = {}, {}, memberships and {}, 1
for n, member in ipairs(members) do
  local i = (n - 1) * stride + 1
  if not written[n] then
    kept[#kept + 1] = member
    scores[#kept] = rows[i]
  end
  if memberships then
    local length = rows[i + 2]
    if not written[n] then
      stands[#kept] = string.sub(packed, at, at + length - 1)
    end
    at = at + length
  end
end
if write_members(shadow, kept, scores, stands, width, dense) then
  return 0
end
redis.call('HSET', meta, 'filled', present(shadow))
return 1
