-- uses: reading
-- Precedes load_rows.lua where scores change as time passes: notes the time as of which the rows were read.
--
-- KEYS  …       the three of load_rows.lua
-- ARGV  …       the six of load_rows.lua, then
--       moment  time, in microseconds of the database's clock; '' if there was none
-- Cost  O(1).

do
  local meta = KEYS[3]
  local moment = unpack(ARGV, #ARGV)
  ARGV[#ARGV] = nil
  if moment ~= '' then
    note_read(meta, moment)
  end
end
