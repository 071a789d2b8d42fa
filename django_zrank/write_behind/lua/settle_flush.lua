-- uses: identity
-- Note that the column has what a flush carried, so that the next one may begin.
--
-- KEYS  meta    hash of the index
-- ARGV  term    under which the database noted the flush
--       number  of the flush
-- Returns 'done', or 'superseded' with nothing changed if it is settled, or the server or the term is another.
-- Cost  O(1).

local meta = KEYS[1]
local term, number = unpack(ARGV)

local state = redis.call('HMGET', meta, 'server', 'term', 'taken', 'settled')
if state[2] ~= term or state[3] ~= number or state[4] == number or state[1] ~= identity() then
  return 'superseded'
end
redis.call('HSET', meta, 'settled', number)
return 'done'
