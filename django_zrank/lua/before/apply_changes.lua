-- uses: clock, pending
-- Precedes apply_changes.lua where scores begin in Redis: adds to each score what its row lacks of them.
--
-- KEYS  …         those of apply_changes.lua, then
--       meta      hash of the index
--       pending   hash, member -> its pending change
-- ARGV  …         those of apply_changes.lua, then
--       at        which of KEYS is 'meta'
--       first     where the first member stands in ARGV
--       stride    how many arguments a member has
--       rule      'sum', 'max', 'min' or 'last'
--       flushed   the last flush that the database noted when the rows were read; '' where no row was found
-- Returns nil, with nothing written, where the rows are too old to tell what they lack.
-- Cost  O(members), for each flush that they lack.

do
  local OWN = 5
  local count = #ARGV - OWN
  local at, first, stride, rule, flushed = unpack(ARGV, count + 1, count + OWN)
  for i = count + OWN, count + 1, -1 do
    ARGV[i] = nil
  end
  if flushed ~= '' then
    local hashes = unflushed(KEYS[at + 1], KEYS[tonumber(at)], tonumber(flushed))
    if not hashes then
      return false
    end
    local members, positions = {}, {}
    for i = first, count, stride do
      -- A score that tie bytes make exact lies beyond what a change may lead to.
      if stride == '2' or string.byte(ARGV[i + 2], 1) ~= 0 then
        members[#members + 1], positions[#positions + 1] = ARGV[i], i + 1
      end
    end
    apply_pending(hashes, rule, members, ARGV, positions)
  end
end
