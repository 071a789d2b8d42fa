-- uses: server, clear, move
-- Puts the shadow in the place of the live side, all rankings in one step.
--
-- KEYS  live      sorted set that is read, and root of the names of all that belongs to it
--       shadow    sorted set that the rebuild has filled, and such a root; missing where no row is ranked
--       meta      hash of the index
-- ARGV  building  the generation that was built
-- Returns 1, or 0 with nothing changed where another rebuild began, this one was taken for dead, or the server
--         restarted and may have lost rows.
-- Cost  O(facet rankings on both sides), whatever their sizes. Measured on a busy machine: 3 to 10 µs for each that is
--       new and 15 to 45 µs for each that replaces another, so that 100,000 values of a facet block the server for
--       2 to 4 s.

local live, shadow, meta = KEYS[1], KEYS[2], KEYS[3]
local building = unpack(ARGV)

if not holds(meta, 'building', building) then
  return 0
end
clear(live)
move(shadow, live)
local applied = next_place(redis.call('HGET', meta, 'token'))
redis.call('HSET', meta, 'generation', building, 'applied', applied, 'token', applied)
redis.call('HDEL', meta, 'building', 'seen', 'behind')
return 1
