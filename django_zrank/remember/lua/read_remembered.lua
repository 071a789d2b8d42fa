-- uses: clock
-- The members that were shown to a member: the newest 1,000.
--
-- KEYS  remembered  sorted set of members shown to this one -> until when, in microseconds
-- Returns their primary keys, the last one first.
-- Cost  O(members).

local remembered = KEYS[1]

local now = integer(clock())
return redis.call('ZREVRANGEBYSCORE', remembered, '+inf', '(' .. now, 'LIMIT', 0, 1000)
