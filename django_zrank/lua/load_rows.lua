-- uses: clock, server, bulk, keys, ties, memberships
-- Add rows of a rebuild's snapshot to the shadow, except members that were written since the rebuild began.
--
-- KEYS  shadow    root of the generation that the rebuild is filling: sorted set of all members, and of the names of all
--                 that belongs to it
--       recent    sorted set, member -> version of its newest write; since start_rebuild.lua, none is forgotten
--       meta      hash of the index
-- ARGV  building  the generation being built
--       width     of the tie bytes
--       memberships  '1' if members have memberships
--       dense     '1' if distinct values are counted
--       rows      JSON: groups of rows that stand in the same facet rankings, each a list of the names of these as a
--                 membership has them, the number of tie bytes of each row, and score and member of each in turn, as
--                 texts. 3,500 rows at most. One text costs the server and its client less than thousands of arguments
--       packed    the tie bytes of all rows, one after the other
-- Returns {'done', microseconds of the processor that it took}; {'superseded'} with nothing written if another rebuild
--         began, this one was taken for dead, or the server restarted and may have lost rows, or evicted some.
-- Cost  O(rows * (1 + rankings that a member stands in) * log(size)); rows sorted by score insert fastest.

local shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local building, width, memberships, dense, rows, packed = unpack(ARGV)
width, memberships, dense = tonumber(width), memberships == '1', dense == '1'
local began = used()

if not holds(meta, 'building', building) then
  return {'superseded'}
end
-- Keys that were evicted would not be missed after this: rows that were loaded, or the versions that later rows give
-- way to.
local state, is_guarded = redis.call('HMGET', meta, 'filled', 'guarded'), redis.call('EXISTS', recent) == 1
if is_evicted(shadow, state[1]) or state[2] == '1' and not is_guarded then
  return {'superseded'}
end
redis.call('HSET', meta, 'seen', integer(clock()))

rows = cjson.decode(rows)
if not is_guarded and not memberships and not dense then
  redis.call('ZADD', shadow, unpack(rows[1], 3))
  redis.call('HSET', meta, 'filled', present(shadow))
  return {'done', used() - began}
end

local written = {}
if is_guarded then
  local members = {}
  for _, group in ipairs(rows) do
    for i = 4, #group, 2 do
      members[#members + 1] = group[i]
    end
  end
  written = read_all('ZMSCORE', recent, members)
end
-- A member that was not written since the rebuild began stands nowhere yet, unless the query has returned its row twice.
-- Appending by '#' costs a search, so it is done once a group.
local entering, stands, number, at, noted = {[''] = {}}, {}, 0, 1, 0
for _, group in ipairs(rows) do
  local names, tied, entered, count = group[1], group[2], {}, 0
  for i = 3, #group, 2 do
    number = number + 1
    if not written[number] then
      local member, tie = group[i + 1], string.sub(packed, at, at + tied - 1)
      entered[count + 1], entered[count + 2] = group[i], tie .. member
      count = count + 2
      if tie ~= '' or names ~= '' then
        stands[noted + 1], stands[noted + 2] = member, tie .. names
        noted = noted + 2
      end
    end
    at = at + tied
  end
  for name in rankings_of(names) do
    local list = list_of(entering, name)
    local last = #list
    for i = 1, count do
      list[last + i] = entered[i]
    end
  end
end
if change_rankings(shadow, {}, entering, width, dense) then
  return {'superseded'}
end
write_all('HSET', memberships_key(shadow), stands)
redis.call('HSET', meta, 'filled', present(shadow))
return {'done', used() - began}
