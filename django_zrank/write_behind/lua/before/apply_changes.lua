-- uses: pending
-- Precedes apply_changes.lua for write-behind scores: adds to each score what its row lacks of them.
--
-- KEYS  …         the five of apply_changes.lua, then
--       pending   hash, member -> its pending change
-- ARGV  …         those of apply_changes.lua, then
--       rule      by which scores change, with its column and unit: sum:points:0
--       flushed   the last flush that the database noted when the rows were read; '' where no row was found
-- Returns {'superseded'}, with nothing written, where the rows are too old to tell what they lack.
-- Cost  O(members), for each flush that they lack.

do
  local meta, pending = KEYS[4], KEYS[6]
  local memberships, FIRST = ARGV[8] == '1', 12
  local rule, flushed = unpack(ARGV, #ARGV - 1)
  ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil
  if flushed ~= '' then
    local hashes = unflushed(pending, meta, tonumber(flushed), rule)
    if not hashes then
      return {'superseded'}
    end
    local members, positions = {}, {}
    for i = FIRST, #ARGV, memberships and 3 or 2 do
      -- A score that tie bytes make exact lies beyond what a change may lead to.
      if not memberships or string.byte(ARGV[i + 2], 1) ~= 0 then
        members[#members + 1], positions[#positions + 1] = ARGV[i], i + 1
      end
    end
    apply_pending(hashes, operation_of(rule), members, ARGV, positions)
  end
end
