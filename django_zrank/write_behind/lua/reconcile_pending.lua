-- uses: clock, identity, pending, returns, permissions
-- Reconcile the pending changes of a server that is about to be trusted with its column. Leaves no flush in flight.
--
-- KEYS  meta       hash of the index
--       pending    hash, member -> its pending change
-- ARGV  server     its identity
--       term       that it had when it was found, '' for none
--       found      the last flush that it had taken then, 0 for none
--       rule       by which scores change, with its column and unit: sum:points:0
--       flushed    the last flush that the database noted; before the last call, 'found'
--       committed  '1' if the column has what the flush in flight carried
--       all        '1' to drop all pending changes: the live build contains them, so it must be replaced, perhaps by another
--                  process than the caller
--       number     of members that the flush in flight wrote, if not all of it
--       …          then these members; and those that were carried by flushes unknown to this server: their pending changes
--                  are as old as the failover, so the column has them
-- Returns 'done', or 'superseded' with nothing changed if this is another server, or has been trusted since, so that
--         flushes of the new term may be in flight, or if another flush has been taken since: a server that is rolled back with
--         its memory goes on taking changes and flushes, and what is pending by now may be in no flush.
-- Cost  O(members + members in flight).

local meta, pending = KEYS[1], KEYS[2]
local server, term, found, rule, flushed, committed, all, number = unpack(ARGV, 1, 8)
local FIRST = 9

if identity() ~= server then
  return 'superseded'
end
local state = redis.call('HMGET', meta, 'taken', 'settled', 'kept', 'build', 'building', 'term', 'rule', 'held', 'carried')
local taken, settled = tonumber(state[1] or 0), tonumber(state[2] or 0)
if (state[6] or '') ~= term or taken ~= tonumber(found) then
  return 'superseded'
end
rule = state[7] or rule
require_commands(meta)
local held = state[8]
local is_evicted = held and (held == 'evicted' or redis.call('EXISTS', pending) == 0)

if settled < taken and committed ~= '1' then
  is_evicted = is_evicted or state[9] == integer(taken) and redis.call('EXISTS', carried_key(pending, taken)) == 0
  local written, CHUNK = {unpack(ARGV, FIRST, FIRST + number - 1)}, 2000
  if written[1] then
    redis.call('HDEL', carried_key(pending, taken), unpack(written))
  end
  local carried = redis.call('HGETALL', carried_key(pending, taken))
  for first = 1, #carried, CHUNK do
    local members, changes = {}, {}
    for i = first, math.min(first + CHUNK, #carried + 1) - 1, 2 do
      members[#members + 1], changes[#changes + 1] = carried[i], carried[i + 1]
    end
    return_pending(pending, rule, members, changes)
  end
end
for number = tonumber(state[3] or taken), taken do
  redis.call('UNLINK', carried_key(pending, number))
end
if all == '1' then
  redis.call('UNLINK', pending)
  if state[4] then
    redis.call('HSET', meta, 'behind', 'rebuild')
  end
elseif #ARGV >= FIRST + number then
  redis.call('HDEL', pending, unpack(ARGV, FIRST + number))
end
if state[4] or state[5] then
  redis.call('HSET', meta, 'taken', flushed, 'settled', flushed, 'kept', integer(flushed + 1))
  redis.call('HDEL', meta, 'took', 'cursor', 'identified', 'held', 'carried')
  if is_evicted or redis.call('EXISTS', pending) == 1 then
    redis.call('HSET', meta, 'held', is_evicted and 'evicted' or rule)
  end
end
return 'done'
