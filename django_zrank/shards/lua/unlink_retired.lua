-- Unlink keys of a retired shard, unless it is being built again.
--
-- KEYS  meta  hash of the shard; its build was removed before
--       …     then the keys to unlink
-- Returns 'done', or 'superseded' with nothing changed if it has a build, or one is being made.
-- Cost  O(keys).

local meta = KEYS[1]

local build, building = unpack(redis.call('HMGET', meta, 'build', 'building'))
if build or building then
  return 'superseded'
end
redis.call('UNLINK', unpack(KEYS, 2))
return 'done'
