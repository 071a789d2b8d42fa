-- uses: keys, permissions
-- Unlink some of the keys of a generation that is neither live nor being built.
--
-- KEYS  root        of the generation
--       meta        hash of the index
--       doomed      set of the generations whose keys are to be unlinked
-- ARGV  generation  its name
--       limit       the most facet rankings to unlink
--       …           then suffixes of keys beside a ranking
-- Returns 'more' while facet rankings are left; 'done' if all of its keys are gone, or it is live or being built.
-- Cost  O(limit).

local root, meta, doomed = KEYS[1], KEYS[2], KEYS[3]
local generation, limit = unpack(ARGV)
local FIRST = 3

-- A ranking, and the keys beside it.
local function keys_of(ranking)
  local keys = {ranking}
  for i = FIRST, #ARGV do
    keys[#keys + 1] = ranking .. ARGV[i]
  end
  return keys
end

local state = redis.call('HMGET', meta, 'generation', 'building')
if state[1] == generation or state[2] == generation then
  redis.call('SREM', doomed, generation)
  return 'done'
end
require_commands(meta)
local names = redis.call('ZPOPMIN', names_key(root), limit)
for i = 1, #names, 2 do
  redis.call('UNLINK', unpack(keys_of(ranking_key(root, names[i]))))
end
if redis.call('EXISTS', names_key(root)) == 1 then
  return 'more'
end
redis.call('UNLINK', memberships_key(root), unpack(keys_of(root)))
redis.call('SREM', doomed, generation)
return 'done'
