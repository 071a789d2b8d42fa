-- Note that the marks set waiting by a replay are processed.
--
-- KEYS  meta    hash of the index
-- ARGV  behind  the replay, as check_health.lua named it before the marks were read
-- Returns 'done', or 'superseded' with nothing changed if another one has begun.
-- Cost  O(1).

local meta = KEYS[1]
local behind = unpack(ARGV)

if redis.call('HGET', meta, 'behind') ~= behind then
  return 'superseded'
end
redis.call('HDEL', meta, 'behind')
return 'done'
