-- uses: bulk, pending
-- Precedes load_rows.lua for write-behind scores: adds to each score what its row lacks of them.
--
-- KEYS  …         the three of load_rows.lua, then
--       pending   hash, member -> its pending change
-- ARGV  …         the six of load_rows.lua, then
--       rule      by which scores change, with its column and unit: sum:points:0
--       flushed   the last flush that the database noted when the rows were read
-- Returns 'superseded', with nothing written, where the rows are too old to tell what they lack.
-- Cost  O(rows), for each flush that they lack.

do
  local meta, pending = KEYS[3], KEYS[4]
  local ROWS = 4
  local rule, flushed = unpack(ARGV, #ARGV - 1)
  ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil
  local hashes = unflushed(pending, meta, tonumber(flushed), rule)
  if not hashes then
    return 'superseded'
  end
  if #hashes > 0 and redis.call('EXISTS', unpack(hashes)) > 0 then
    local groups = {cmsgpack.unpack(ARGV[ROWS])}
    local members, scores, at, slots = {}, {}, {}, {}
    for group = 2, #groups, 3 do
      local rows = {cmsgpack.unpack(groups[group])}
      groups[group] = rows
      for i = 1, #rows, 2 do
        -- A score that tie bytes make exact lies beyond what a change may lead to. No other member has tie bytes.
        if string.byte(rows[i + 1]) ~= 0 then
          local count = #members + 1
          members[count], scores[count], at[count], slots[count] = rows[i + 1], rows[i], count, {rows, i}
        end
      end
    end
    if apply_pending(hashes, operation_of(rule), members, scores, at) > 0 then
      for count, slot in ipairs(slots) do
        slot[1][slot[2]] = scores[count]
      end
      for group = 2, #groups, 3 do
        groups[group] = pack_all(groups[group])
      end
      ARGV[ROWS] = pack_all(groups)
    end
  end
end
