-- uses: server
-- Note the time up to which idle members have marks.
--
-- KEYS  meta        hash of the index
-- ARGV  build       that was live when the last note was read, which this one continues
--       term        under which the server was trusted
--       moment      time, in microseconds: members that were last seen then, or before, have marks
--       removed     the note of note_removal.lua, if it lay in the future and its members have marks: it is removed unless
--                   there is a later one; '' for none
-- Returns 'done', or 'superseded' with nothing changed if the server, the term or the build is another, which may be
--         of another period.
-- Cost  O(1).

local meta = KEYS[1]
local build, term, moment, removed = unpack(ARGV)

if not (holds(meta, 'build', build) and holds(meta, 'term', term)) then
  return 'superseded'
end
redis.call('HSET', meta, 'swept', moment)
if holds(meta, 'removed', removed) then
  redis.call('HDEL', meta, 'removed')
end
return 'done'
