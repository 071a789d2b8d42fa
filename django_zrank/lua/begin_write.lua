-- uses: server, identity, traces
-- Return the state that a write refers to; called before it reads its rows.
--
-- KEYS  meta     hash of the index
--       doomed   set of the builds whose keys are to be unlinked
--       watcher  text that exists while a watcher keeps the index in step
-- ARGV  lease    seconds after which a silent rebuild counts as dead, and is given up here
-- Returns {build, building, token, term, newest, 1 or 0 for a watcher}, each text '' if missing; the error NOTBUILT if
--         the index was never built; the error UNHEALTHY if the server, or its history, is not the trusted one,
--         and may have lost writes; the error READONLY if the server is not a primary. The token is a fencing token, the
--         version of the newest write: apply_changes.lua refuses members that were written since. 'newest' is the newest
--         trace (lib/traces.lua).
-- Cost  O(1).

local meta, doomed, watcher = KEYS[1], KEYS[2], KEYS[3]
local lease = unpack(ARGV)

local server, is_primary = identity()
if not is_primary then
  return redis.error_reply('READONLY the server is not a primary')
end
local state = redis.call('HMGET', meta, 'build', 'building', 'heartbeat', 'applied', 'server', 'term', 'traces')
local build, building, heartbeat, applied, trusted, term, traces = unpack(state, 1, 7)
if trusted and trusted ~= server then
  return redis.error_reply('UNHEALTHY the server is not the one that was written to')
end
if building and is_silent(heartbeat, lease) then
  redis.call('SADD', doomed, building)
  redis.call('HDEL', meta, 'building', 'heartbeat')
  building = false
end
if not build and not building then
  return redis.error_reply('NOTBUILT the index is not built')
end
return {build or '', building or '', applied or '0', term or '', newest_trace(traces or '0'),
  redis.call('EXISTS', watcher)}
