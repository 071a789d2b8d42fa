-- uses: server, permissions
-- Make the build that was filled the live one: all rankings in one step, whatever their number.
--
-- KEYS  live        root of the live build: unlinked, so that clients which still read it find it empty
--       shadow      root of the build that was filled; missing if no row is ranked
--       meta        hash of the index
--       doomed      set of the builds whose keys are to be unlinked: the old one is added
-- ARGV  building    the build that was filled
--       build       the live one, '' for none
--       loaded      number of rows that the rebuild has loaded
--       …           then fields of meta that belong to the build, each with its value; '' for none
-- Returns 'done', or 'superseded' with nothing changed if another rebuild began, this one was taken for dead, or the
--         server restarted or was rolled back and may have lost rows, or evicted some.
-- Cost  O(1).

local live, shadow, meta, doomed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local building, build, loaded = unpack(ARGV, 1, 3)
local FIRST = 4

if not holds(meta, 'building', building) or (redis.call('HGET', meta, 'build') or '') ~= build
  or (redis.call('HGET', meta, 'loaded') or '0') ~= loaded
  or is_evicted(shadow, redis.call('HGET', meta, 'filled')) then
  return 'superseded'
end
require_commands(meta)
if build ~= '' then
  redis.call('UNLINK', live)
  redis.call('SADD', doomed, build)
end
redis.call('HSET', meta, 'build', building, 'applied', next_version(redis.call('HGET', meta, 'applied')),
  'present', present(shadow))
redis.call('HDEL', meta, 'building', 'heartbeat', 'behind', 'filled', 'loaded')
for i = FIRST, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if value == '' then
    redis.call('HDEL', meta, field)
  else
    redis.call('HSET', meta, field, value)
  end
end
return 'done'
