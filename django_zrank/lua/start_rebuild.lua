-- Begins a rebuild; another one that is running gives way.
--
-- KEYS  shadow    sorted set to fill; what a killed rebuild left in it is cleared
--       recent    sorted set, member -> token of its newest write
--       meta      hash of the index
-- ARGV  building  the new generation
-- Returns the rebuild's token: members written from now on carry a higher one.
-- Cost  O(1).

local shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local building = unpack(ARGV)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = redis.call('HGET', meta, 'token')
local token = string.format('%.0f', math.max(now, (last or 0) + 1))

-- No write that began earlier can be applied any more (its 'building' differs), so its guard is not needed.
redis.call('UNLINK', shadow, recent)
redis.call('HSET', meta, 'building', building, 'started', token, 'seen', token, 'token', token)
return token
