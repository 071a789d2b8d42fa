-- uses: reading
-- Note the times between which a push found that members aren't ranked, before it removes them.
--
-- KEYS  meta  hash of the index
-- ARGV  from  time, in microseconds of the database's clock
--       to    the same, or a later one
-- Returns 'done'.
-- Cost  O(1).

local meta = KEYS[1]
local from, to = unpack(ARGV)

note_read(meta, from)
note_read(meta, to)
return 'done'
