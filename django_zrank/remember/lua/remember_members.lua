-- uses: clock, permissions
-- Remember members that were shown to a member: the newest 1,000.
--
-- KEYS  remembered  sorted set of members shown to this one -> until when, in microseconds
-- ARGV  remember  microseconds for which members are remembered
--       …         then primary keys, at least one
-- Returns nothing.
-- Cost  O(members).

local remembered = KEYS[1]
local remember = unpack(ARGV, 1, 1)
local FIRST = 2
local call = redis.call
local now = clock()
require_commands(remembered)
call('ZREMRANGEBYSCORE', remembered, '-inf', integer(now))
for first = FIRST, #ARGV, 1000 do
  local added = {}
  for i = first, math.min(first + 999, #ARGV) do
    added[#added + 1], added[#added + 2] = integer(now + remember), ARGV[i]
  end
  call('ZADD', remembered, unpack(added))
end
call('ZREMRANGEBYRANK', remembered, 0, -1001)
call('PEXPIREAT', remembered, integer(call('ZRANGE', remembered, -1, -1, 'WITHSCORES')[2] / 1000))
