-- Puts the shadow in the place of the live sorted set, in one step.
--
-- KEYS  live      sorted set that is read
--       shadow    sorted set that the rebuild has filled; missing where no row is ranked
--       old       where the replaced one waits to be freed
--       meta      hash of the index
-- ARGV  building  the generation that was built
-- Returns 1, or 0 with nothing changed where another rebuild began, this one was taken for dead, or the server
--         restarted and may have lost rows.
-- Cost  O(1): a rename over the live key would free it on the spot, for seconds at 20 million members.

local live, shadow, old, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local building = unpack(ARGV)

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('HGET', meta, 'building') ~= building or redis.call('HGET', meta, 'run') ~= run then
  return 0
end
redis.call('UNLINK', old)
if redis.call('EXISTS', live) == 1 then
  redis.call('RENAME', live, old)
end
if redis.call('EXISTS', shadow) == 1 then
  redis.call('RENAME', shadow, live)
end
local time = redis.call('TIME')
local applied = string.format('%.0f', math.max(time[1] * 1000000 + time[2], redis.call('HGET', meta, 'token') + 1))
redis.call('HSET', meta, 'generation', building, 'applied', applied, 'token', applied)
redis.call('HDEL', meta, 'building', 'seen', 'behind')
redis.call('UNLINK', old)
return 1
