-- uses: clock
-- Note that the column has the times at which members were touched, and let it rest before it is written again.
--
-- KEYS  touched  sorted set, member -> when it was last seen, if its column doesn't have that yet
--       due      sorted set, member -> when its column may be written again
-- ARGV  rest     microseconds until then
--       …        then pairs: member, the time that was written, '' if it had not been touched; 1,000 at most
-- Returns nothing. A member touched meanwhile remains touched until its column has rested.
-- Cost  O(members * log(touched members)).

local touched, due = KEYS[1], KEYS[2]
local rest = unpack(ARGV, 1, 1)
local FIRST = 2

local again = integer(clock() + rest)
for i = FIRST, #ARGV, 2 do
  local member, written = ARGV[i], ARGV[i + 1]
  local last = redis.call('ZSCORE', touched, member)
  if last and tonumber(last) == tonumber(written) then
    redis.call('ZREM', touched, member)
  end
  if written ~= '' then
    redis.call('ZADD', due, again, member)
  elseif not last then
    redis.call('ZREM', due, member)
  end
end
