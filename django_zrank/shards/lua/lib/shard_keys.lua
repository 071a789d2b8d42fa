-- The keys of a shard, by the key of a ranking in it: scripts about many shards are given no others.

-- The sorted set of all its members, its hash, and the build that the ranking is of.
local function shard_keys(ranking)
  local live, tag, build = string.match(ranking, '^(([^}]*}):([^:]*))')
  return live, tag .. ':meta', build
end
