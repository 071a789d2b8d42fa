-- uses: identity, permissions
-- Accept a server, or a history of one, under a new term, once the marks that it may have lost are waiting again.
--
-- KEYS  meta        hash of the index
--       doomed      set of the builds whose keys are to be unlinked: that of a rebuild is added, as it may lack rows
-- ARGV  build       that the server must hold
--       traces      those that it had when the marks were set waiting, as check_health.lua returned them
--       old         its term then, '' for none
--       server      its identity then
--       term        the new term
--       behind      '1' if marks were set waiting: the index is behind until they are processed
-- Returns 'done', or 'superseded' with nothing changed if its state is another by now.
-- Cost  O(1).

local meta, doomed = KEYS[1], KEYS[2]
local build, traces, old, server, term, behind = unpack(ARGV)

local state = redis.call('HMGET', meta, 'build', 'traces', 'term', 'building')
if state[1] ~= build or (state[2] or '') ~= traces or (state[3] or '') ~= old or identity() ~= server then
  return 'superseded'
end
require_commands(meta)
if state[4] then
  redis.call('SADD', doomed, state[4])
  redis.call('HDEL', meta, 'building', 'heartbeat')
end
redis.call('HSET', meta, 'server', server, 'term', term)
if behind == '1' and redis.call('HGET', meta, 'behind') ~= 'rebuild' then
  redis.call('HSET', meta, 'behind', term)
end
return 'done'
