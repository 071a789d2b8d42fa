-- uses: clock, joined, permissions
-- Count the members of a group whose time is not over by a facet that they had when they joined, some values a call.
--
-- KEYS  group   sorted set, primary key -> its expiry in microseconds
--       joined  hash, primary key -> the names of the facet rankings by which it is counted
--       counts  hash, name of a facet ranking -> number of members that had it when they joined
-- ARGV  facet   prefix of the names of its rankings: the facet's name and a colon
--       cursor  the one that the last reply returned; 0 at first
--       limit   the most expired members to remove, and the values to look at, about
-- Returns the word 'expired' if more members may have expired; otherwise 'counted' and the next cursor, '0' after the last
--         values; then name of ranking and number of members for each, some of which an earlier reply may have had.
-- Cost  O(limit * (log(size) + facets)).

local group, joined, counts = KEYS[1], KEYS[2], KEYS[3]
local facet, cursor, limit = unpack(ARGV)
local call = redis.call

local expired = call('ZRANGE', group, '-inf', integer(clock()), 'BYSCORE', 'LIMIT', 0, limit)
if expired[1] then
  require_commands(group)
  uncount(joined, counts, expired)
  call('ZREM', group, unpack(expired))
  if #expired == tonumber(limit) then
    return {'expired'}
  end
end
if call('EXISTS', group) == 0 then -- it may have been evicted
  call('UNLINK', joined, counts)
end
local found = call('HSCAN', counts, cursor, 'COUNT', limit)
local reply = {'counted', found[1]}
for i = 1, #found[2], 2 do
  if string.sub(found[2][i], 1, #facet) == facet then
    reply[#reply + 1] = found[2][i]
    reply[#reply + 1] = found[2][i + 1]
  end
end
return reply
