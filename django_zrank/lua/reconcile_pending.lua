-- uses: clock, identity, pending, sums
-- Reconcile the pending changes of a server that is about to be accepted with its column. Leaves no flush in flight.
--
-- KEYS  meta       hash of the index
--       pending    hash, member -> its pending change
-- ARGV  server     its identity
--       term       that it had when it was found, '' for none
--       rule       'sum', 'max', 'min' or 'last'
--       flushed    the last flush that the database noted
--       committed  '1' if the column has what the flush in flight carried
--       all        '1' to drop all pending changes
--       …          then members that were carried by flushes unknown to this server: their pending changes are as old as the
--                  failover, so the column has them
-- Returns 'done', or 'superseded' with nothing changed if this is another server, or has been accepted since, so that
--         flushes of the new term may be in flight.
-- Cost  O(members + members in flight).

local meta, pending = KEYS[1], KEYS[2]
local server, term, rule, flushed, committed, all = unpack(ARGV, 1, 6)
local FIRST = 7

if identity() ~= server then
  return 'superseded'
end
local state = redis.call('HMGET', meta, 'taken', 'settled', 'kept', 'generation', 'building', 'term', 'rule')
if (state[6] or '') ~= term then
  return 'superseded'
end
local taken, settled = tonumber(state[1] or 0), tonumber(state[2] or 0)
rule = state[7] or rule

-- Put back changes that a flush carried, before the later ones of the same members.
local function put_back(members, changes)
  if rule == 'sum' then
    return add_pending(pending, members, changes)
  end
  local merged = {}
  for n, later in ipairs(redis.call('HMGET', pending, unpack(members))) do
    local change = later or changes[n]
    if later and rule ~= 'last' then
      change = integer(changed(rule, tonumber(changes[n]), tonumber(later)))
    end
    merged[2 * n - 1], merged[2 * n] = members[n], change
  end
  redis.call('HSET', pending, unpack(merged))
end

if settled < taken and committed ~= '1' then
  local carried, CHUNK = redis.call('HGETALL', carried_key(pending, taken)), 2000
  for first = 1, #carried, CHUNK do
    local members, changes = {}, {}
    for i = first, math.min(first + CHUNK, #carried + 1) - 1, 2 do
      members[#members + 1], changes[#changes + 1] = carried[i], carried[i + 1]
    end
    put_back(members, changes)
  end
end
for number = tonumber(state[3] or taken), taken do
  redis.call('UNLINK', carried_key(pending, number))
end
if all == '1' then
  redis.call('UNLINK', pending)
elseif ARGV[FIRST] then
  redis.call('HDEL', pending, unpack(ARGV, FIRST))
end
if state[4] or state[5] then
  redis.call('HSET', meta, 'taken', flushed, 'settled', flushed, 'kept', integer(flushed + 1))
  redis.call('HDEL', meta, 'took', 'cursor', 'identified')
end
return 'done'
