-- uses: server
-- Note up to where members that fell asleep have been removed from this server.
--
-- KEYS  meta        hash of the index
-- ARGV  generation  that was live when the last note was read, which this one goes on from
--       term        under which the server had been accepted
--       moment      when the last of them was last seen, in microseconds
--       member      its primary key; '' where all that were last seen then, or before, have been removed
-- Returns 'done', or 'superseded' with nothing changed if the server, the term or the build is another: it may lack
--         removals, those of the last note among them, or be of another period.
-- Cost  O(1).

local meta = KEYS[1]
local generation, term, moment, member = unpack(ARGV)

if not (holds(meta, 'generation', generation) and holds(meta, 'term', term)) then
  return 'superseded'
end
redis.call('HSET', meta, 'swept', moment, 'swept_member', member)
return 'done'
