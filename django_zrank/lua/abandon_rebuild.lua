-- uses: permissions
-- Give up a rebuild, and doom its generation. The live generation is unchanged.
--
-- KEYS  meta      hash of the index
--       doomed    set of the generations whose keys are to be unlinked
-- ARGV  building  the generation being built
-- Returns 'done', or 'superseded' with nothing changed if another rebuild began.
-- Cost  O(1).

local meta, doomed = KEYS[1], KEYS[2]
local building = unpack(ARGV)

if redis.call('HGET', meta, 'building') ~= building then
  return 'superseded'
end
require_commands(meta)
-- A server without memory refuses SADD as the first write of a script, though not as a later one.
redis.call('HDEL', meta, 'building', 'seen')
redis.call('SADD', doomed, building)
return 'done'
