-- uses: clock, joined, permissions
-- Take members out of a group. Of several clients that claim a member, one gets it.
--
-- KEYS  group   sorted set, primary key -> its expiry in microseconds
--       joined  hash, primary key -> the names of the facet rankings by which it is counted
--       counts  hash, name of a facet ranking -> number of members that had it when they joined
-- ARGV  …       members, each once
-- Returns the members that were in the group.
-- Cost  O(members * (log(size) + facets)).

local group, joined, counts = KEYS[1], KEYS[2], KEYS[3]

local claimed, now = {}, nil
for i, expiry in ipairs(redis.call('ZMSCORE', group, unpack(ARGV))) do
  now = now or expiry and expiry ~= 'inf' and clock()
  if expiry and (expiry == 'inf' or tonumber(expiry) > now) then
    claimed[#claimed + 1] = ARGV[i]
  end
end
if claimed[1] and redis.call('EXISTS', joined) == 1 then
  require_commands(group)
  uncount(joined, counts, claimed)
end
if claimed[1] then
  redis.call('ZREM', group, unpack(claimed))
end
return claimed
