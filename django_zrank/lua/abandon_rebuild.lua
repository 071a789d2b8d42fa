-- uses: permissions
-- Give up a rebuild, and doom what it has built. The live build is unchanged.
--
-- KEYS  meta      hash of the index
--       doomed    set of the builds whose keys are to be unlinked
-- ARGV  building  the build being filled
-- Returns 'done', or 'superseded' with nothing changed if another rebuild began.
-- Cost  O(1).

local meta, doomed = KEYS[1], KEYS[2]
local building = unpack(ARGV)

if redis.call('HGET', meta, 'building') ~= building then
  return 'superseded'
end
require_commands(meta)
-- A server without memory refuses SADD as the first write of a script, though not as a later one.
redis.call('HDEL', meta, 'building', 'heartbeat')
redis.call('SADD', doomed, building)
return 'done'
