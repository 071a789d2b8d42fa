-- uses: server
-- Note up to where members that fell asleep have been removed from this server.
--
-- KEYS  meta    hash of the index
-- ARGV  term    under which they were removed
--       moment  when the last of them was last seen, in microseconds
--       member  its primary key; '' where all that were last seen then, or before, have been removed
-- Returns 1, or 0 with nothing changed where the server or the term is another: it may lack the removals.
-- Cost  O(1).

local meta = KEYS[1]
local term, moment, member = unpack(ARGV)

if not holds(meta, 'term', term) then
  return 0
end
redis.call('HSET', meta, 'swept', moment, 'swept_member', member)
return 1
