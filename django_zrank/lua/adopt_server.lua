-- uses: server, clear
-- Accepts a server that restarted or took over, once the marks that it may have lost are waiting again.
--
-- KEYS  shadow      sorted set that a rebuild was filling, and root of what belongs to it; it may have lost rows, so it
--                   goes
--       meta        hash of the index
-- ARGV  generation  that the server must hold
--       applied     the place up to which it had applied writes when the marks were set waiting
--       server      its run_id then
-- Returns 1, or 0 with nothing changed where it holds something else by now.
-- Cost  O(1), and O(facet rankings in the shadow).

local shadow, meta = KEYS[1], KEYS[2]
local generation, applied, server = unpack(ARGV)

local state = redis.call('HMGET', meta, 'generation', 'applied')
if state[1] ~= generation or (state[2] or '') ~= applied
  or run_id() ~= server then
  return 0
end
clear(shadow)
redis.call('HDEL', meta, 'building', 'seen')
redis.call('HSET', meta, 'run', server, 'behind', string.format('%.0f', clock()))
return 1
