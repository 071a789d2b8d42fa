-- uses: pending
-- Precedes start_rebuild.lua: changes that were evicted before a build are in no row, so it is complete without them.
--
-- KEYS  …         the three of start_rebuild.lua, then
--       pending   hash, member -> its pending change
-- ARGV  …         those of start_rebuild.lua
-- Returns nothing.
-- Cost  O(1).

parts[#parts + 1] = function()
  local meta, pending = KEYS[2], KEYS[4]
  local held, carried, rule, settled = unpack(redis.call('HMGET', meta, 'held', 'carried', 'rule', 'settled'), 1, 4)
  local is_pending = redis.call('EXISTS', pending) == 1
  local is_evicted = held == 'evicted' or held and not is_pending
  if is_evicted and is_pending then
    redis.call('HSET', meta, 'held', rule or '')
  elseif is_evicted then
    redis.call('HDEL', meta, 'held')
  end
  if carried and redis.call('EXISTS', carried_key(pending, carried)) == 0 then
    is_evicted = is_evicted or carried ~= settled
    redis.call('HDEL', meta, 'carried')
  end
  return is_evicted
end
