-- uses: server
-- Note the time up to which all that left a window has marks.
--
-- KEYS  meta        hash of the index
-- ARGV  build       as begin_sweep.lua returned it
--       term        as begin_sweep.lua returned it
--       nonce       that of the sweep
--       moment      time, in microseconds of the database's clock
--       last        the latest time as of which rows were read, if it lay in the future and what left since has marks: the
--                   note is removed unless there is a later one; '' for none
-- Returns 'done', or 'superseded' with nothing changed if another sweep has begun, or the server, the term or the build is
--         another, which may have other windows.
-- Cost  O(1).

local meta = KEYS[1]
local build, term, nonce, moment, last = unpack(ARGV)

if not (holds(meta, 'build', build) and holds(meta, 'term', term) and holds(meta, 'sweep', nonce)) then
  return 'superseded'
end
redis.call('HSET', meta, 'swept', moment)
if holds(meta, 'last_read', last) then
  redis.call('HDEL', meta, 'last_read')
end
return 'done'
