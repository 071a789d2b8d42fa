-- Notes that the marks set waiting by a replay are worked off.
--
-- KEYS  meta    hash of the index
-- ARGV  behind  which replay, as check_health.lua named it before the marks were looked for
-- Returns 1, or 0 with nothing changed where another one has begun.
-- Cost  O(1).

local meta = KEYS[1]
local behind = unpack(ARGV)

if redis.call('HGET', meta, 'behind') ~= behind then
  return 0
end
return redis.call('HDEL', meta, 'behind')
