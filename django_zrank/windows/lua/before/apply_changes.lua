-- uses: reading
-- Precedes apply_changes.lua where scores change as time passes: notes the time as of which the rows were read.
--
-- KEYS  …       the five of apply_changes.lua
-- ARGV  …       those of apply_changes.lua, then
--       moment  time, in microseconds of the database's clock
-- Cost  O(1).

do
  local meta = KEYS[4]
  local moment = unpack(ARGV, #ARGV)
  ARGV[#ARGV] = nil
  note_read(meta, moment)
end
