-- uses: keys, permissions
-- Unlink some of the keys of a build that is neither live nor being built.
--
-- KEYS  root        of the build
--       meta        hash of the index
--       doomed      set of the builds whose keys are to be unlinked
-- ARGV  build       its name
--       limit       the most facet rankings to unlink
--       …           then suffixes of keys beside a ranking
-- Returns 'more' while facet rankings are left; 'done' if all of its keys are gone, or it is live or being built.
-- Cost  O(limit).

local root, meta, doomed = KEYS[1], KEYS[2], KEYS[3]
local build, limit = unpack(ARGV)
local FIRST = 3

-- A ranking, and the keys beside it.
local function keys_of(ranking)
  local keys = {ranking}
  for i = FIRST, #ARGV do
    keys[#keys + 1] = ranking .. ARGV[i]
  end
  return keys
end

local state = redis.call('HMGET', meta, 'build', 'building')
if state[1] == build or state[2] == build then
  redis.call('SREM', doomed, build)
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
redis.call('SREM', doomed, build)
return 'done'
