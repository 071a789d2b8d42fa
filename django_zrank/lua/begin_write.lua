-- uses: server, clear
-- Tells a write that is about to read its rows what it refers to. Places only grow, even past a restart.
--
-- KEYS  shadow  sorted set that a rebuild is filling, and root of what belongs to it
--       meta    hash of the index
-- ARGV  lease   seconds after which a silent rebuild counts as dead; what it left is cleared here
-- Returns {generation, building, token, run_id of the server}, '' for what there is not; nil where the index was never
--         built; the error UNHEALTHY where the server restarted or another took over, and may have lost writes. The token
--         is a place above those of all writes so far.
-- Cost  O(1); O(facet rankings in the shadow) where one is cleared.

local shadow, meta = KEYS[1], KEYS[2]
local lease = unpack(ARGV)

local state = redis.call('HMGET', meta, 'generation', 'building', 'seen', 'token', 'run')
local generation, building, seen, last, run = unpack(state)

if run and run ~= run_id() then
  return redis.error_reply('UNHEALTHY the server is not the one that was written to')
end
if building and is_silent(seen, lease) then
  clear(shadow)
  redis.call('HDEL', meta, 'building', 'seen')
  building = false
end
if not generation and not building then
  return false
end
-- A new place: the last one may be ten minutes old, and a token as old as that is refused.
local token = next_place(last or 0)
redis.call('HSET', meta, 'token', token)
return {generation or '', building or '', token, run or ''}
