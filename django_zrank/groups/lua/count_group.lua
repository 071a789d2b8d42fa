-- uses: clock
-- Count the members of a group whose time is not over.
--
-- KEYS  group  sorted set, primary key -> its expiry in microseconds
-- ARGV  …      the members to count; nothing for all
-- Returns their number.
-- Cost  O(members), or O(log(size)) for all.

local group = KEYS[1]

local now, count = clock(), 0
if #ARGV == 0 then
  return redis.call('ZCOUNT', group, '(' .. integer(now), 'inf')
end
for _, expiry in ipairs(redis.call('ZMSCORE', group, unpack(ARGV))) do
  if expiry and tonumber(expiry) > now then
    count = count + 1
  end
end
return count
