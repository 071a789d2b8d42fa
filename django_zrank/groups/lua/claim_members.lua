-- uses: clock
-- Take members out of a group. Of several clients that claim a member, one gets it.
--
-- KEYS  group  sorted set, primary key -> its expiry in microseconds
-- ARGV  …      members, each once
-- Returns the members that were in the group.
-- Cost  O(members * log(size)).

local group = KEYS[1]

local claimed, now = {}, nil
for i, expiry in ipairs(redis.call('ZMSCORE', group, unpack(ARGV))) do
  now = now or expiry and expiry ~= 'inf' and clock()
  if expiry and (expiry == 'inf' or tonumber(expiry) > now) then
    claimed[#claimed + 1] = ARGV[i]
  end
end
if claimed[1] then
  redis.call('ZREM', group, unpack(claimed))
end
return claimed
