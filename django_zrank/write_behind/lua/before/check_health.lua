-- uses: pending
-- Precedes check_health.lua: tells if Redis has evicted pending changes, or those of the flush in flight.
--
-- KEYS  …         the two of check_health.lua, then
--       pending   hash, member -> its pending change
-- ARGV  …         those of check_health.lua
-- Returns nothing.
-- Cost  O(1).

parts[#parts + 1] = function()
  local meta, pending = KEYS[2], KEYS[3]
  local held, carried, taken, settled = unpack(redis.call('HMGET', meta, 'held', 'carried', 'taken', 'settled'), 1, 4)
  return held == 'evicted' or held and redis.call('EXISTS', pending) == 0
    or carried and carried == taken and carried ~= settled and redis.call('EXISTS', carried_key(pending, carried)) == 0
end
