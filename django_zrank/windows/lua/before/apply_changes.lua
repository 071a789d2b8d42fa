-- uses: reading
-- Precedes apply_changes.lua where scores change as time passes: notes the time as of which the rows were read.
--
-- KEYS  …       the five of apply_changes.lua
-- ARGV  …       those of apply_changes.lua, then
--       moment  time, in microseconds of the database's clock; '' if there was none
-- Cost  O(1).

do
  local meta = KEYS[4]
  local moment = unpack(ARGV, #ARGV)
  ARGV[#ARGV] = nil
  if moment ~= '' then
    note_read(meta, moment)
  end
end
