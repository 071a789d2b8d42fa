-- uses: clear
-- Clears what a failed rebuild has filled. The live side stays as it is.
--
-- KEYS  shadow    sorted set that the rebuild was filling, and root of what belongs to it
--       meta      hash of the index
-- ARGV  building  the generation being built
-- Returns 1, or 0 with nothing changed where another rebuild began.
-- Cost  O(facet rankings in the shadow).

local shadow, meta = KEYS[1], KEYS[2]
local building = unpack(ARGV)

if redis.call('HGET', meta, 'building') ~= building then
  return 0
end
clear(shadow)
redis.call('HDEL', meta, 'building', 'seen')
return 1
