-- uses: clock
-- Note that the column of members tells that they were seen now, and needs no other write for a while.
--
-- KEYS  touched  sorted set, member -> when its column may be written again
-- ARGV  rest     microseconds until then
--       …        then members: primary keys as text; 1,000 at most
-- Returns nothing.
-- Cost  O(members * log(touched members)).

local touched = KEYS[1]
local rest = unpack(ARGV, 1, 1)
local FIRST = 2

local now, noted = clock(), {}
for i = FIRST, #ARGV do
  noted[#noted + 1], noted[#noted + 2] = integer(now + rest), ARGV[i]
end
local over = redis.call('ZRANGE', touched, '-inf', integer(now), 'BYSCORE', 'LIMIT', 0, 2 * #ARGV)
if over[1] then
  redis.call('ZREM', touched, unpack(over))
end
redis.call('ZADD', touched, unpack(noted))
