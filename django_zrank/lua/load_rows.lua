-- Adds rows of a rebuild's snapshot to the shadow, save the members written since the rebuild began.
--
-- KEYS  shadow    sorted set that the rebuild is filling
--       recent    sorted set, member -> token of its newest write; since start_rebuild.lua, none is forgotten
--       meta      hash of the index
-- ARGV  building  the generation being built
--       …         then pairs: score, member; 7,000 values at most
-- Returns 1, or 0 with nothing written where another rebuild began, this one was taken for dead, or the server
--         restarted and may have lost rows.
-- Cost  O(pairs * log(size)); rows sorted by score insert fastest.

local shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local building = unpack(ARGV, 1, 1)
local FIRST_PAIR = 2

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('HGET', meta, 'building') ~= building or redis.call('HGET', meta, 'run') ~= run then
  return 0
end
local time = redis.call('TIME')
redis.call('HSET', meta, 'seen', string.format('%.0f', time[1] * 1000000 + time[2]))

if redis.call('EXISTS', recent) == 0 then
  redis.call('ZADD', shadow, unpack(ARGV, FIRST_PAIR))
  return 1
end
for i = FIRST_PAIR, #ARGV, 2 do
  local score, member = ARGV[i], ARGV[i + 1]
  if not redis.call('ZSCORE', recent, member) then
    redis.call('ZADD', shadow, score, member)
  end
end
return 1
