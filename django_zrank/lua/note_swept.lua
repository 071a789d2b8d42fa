-- uses: server
-- Note up to which moment idle members have been removed from this server.
--
-- KEYS  meta        hash of the index
-- ARGV  generation  that was live when the last note was read, which this one continues
--       term        under which the server had been accepted
--       moment      time at which the last member removed was last seen, in microseconds
--       member      its primary key; '' if all members last seen then, or before, have been removed
-- Returns 'done', or 'superseded' with nothing changed if the server, the term or the build is another, which may lack
--         removals, or be of another period.
-- Cost  O(1).

local meta = KEYS[1]
local generation, term, moment, member = unpack(ARGV)

if not (holds(meta, 'generation', generation) and holds(meta, 'term', term)) then
  return 'superseded'
end
redis.call('HSET', meta, 'swept', moment, 'swept_member', member)
return 'done'
