-- uses: keys, permissions
-- Unlink some of the keys of a generation that is neither live nor being built.
--
-- KEYS  root        of the generation
--       meta        hash of the index
--       doomed      set of the generations whose keys are to be unlinked
-- ARGV  generation  its name
--       limit       the most facet rankings to unlink
-- Returns 'more' while facet rankings are left; 'done' if all of its keys are gone, or it is live or being built.
-- Cost  O(limit).

local root, meta, doomed = KEYS[1], KEYS[2], KEYS[3]
local generation, limit = unpack(ARGV)

local state = redis.call('HMGET', meta, 'generation', 'building')
if state[1] == generation or state[2] == generation then
  redis.call('SREM', doomed, generation)
  return 'done'
end
require_commands(meta)
local names = redis.call('ZPOPMIN', names_key(root), limit)
for i = 1, #names, 2 do
  local key = ranking_key(root, names[i])
  redis.call('UNLINK', key, values_key(key), counts_key(key))
end
if redis.call('EXISTS', names_key(root)) == 1 then
  return 'more'
end
redis.call('UNLINK', root, memberships_key(root), values_key(root), counts_key(root))
redis.call('SREM', doomed, generation)
return 'done'
