-- uses: clock, identity, pending, held, returns, permissions
-- Confirm that a flush still carries what its process has read, and put back what was not written. The process holds the
-- lock on the row that notes the flush, so no other one can note it, or put back any of it, until it commits.
--
-- KEYS  meta     hash of the index
--       pending  hash, member -> its pending change
-- ARGV  term     under which the database knows this server
--       number   of the flush
--       size     number of members that it carried
--       …        then the members whose changes are put back
-- Returns 'done'; 'superseded' with nothing changed if it carries fewer by now, is not in flight, or the server or the term
--         is another.
-- Cost  O(members).

local meta, pending = KEYS[1], KEYS[2]
local term, number, size = unpack(ARGV, 1, 3)
local FIRST, CHUNK = 4, 2000

local state = redis.call('HMGET', meta, 'server', 'term', 'taken', 'settled', 'rule', 'held')
local carried = carried_key(pending, number)
if state[2] ~= term or state[3] ~= number or state[4] == number or state[1] ~= identity() then
  return 'superseded'
elseif redis.call('HLEN', carried) ~= tonumber(size) then
  return 'superseded'
end
require_commands(meta)
if #ARGV >= FIRST then
  note_held(meta, pending, state[5], state[6])
end
for first = FIRST, #ARGV, CHUNK do
  local members = {unpack(ARGV, first, math.min(first + CHUNK - 1, #ARGV))}
  return_pending(pending, state[5], members, redis.call('HMGET', carried, unpack(members)))
  redis.call('HDEL', carried, unpack(members))
  redis.call('HSETNX', meta, 'waiting', integer(clock()))
end
if redis.call('EXISTS', carried) == 0 then
  redis.call('HDEL', meta, 'carried')
end
return 'done'
