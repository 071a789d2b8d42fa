-- uses: pending
-- Precedes load_rows.lua where scores begin in Redis: adds to each score what its row lacks of them.
--
-- KEYS  …         the three of load_rows.lua, then
--       pending   hash, member -> its pending change
-- ARGV  …         the six of load_rows.lua, then
--       rule      'sum', 'max', 'min' or 'last'
--       flushed   the last flush that the database noted when the rows were read
-- Returns 0, with nothing written, where the rows are too old to tell what they lack.
-- Cost  O(rows), for each flush that they lack.

do
  local meta, pending = KEYS[3], KEYS[4]
  local ROWS = 5
  local memberships, packed, rule, flushed = ARGV[3] == '1', unpack(ARGV, 6, 8)
  local hashes = unflushed(pending, meta, tonumber(flushed))
  if not hashes then
    return 0
  end
  if redis.call('EXISTS', unpack(hashes)) > 0 then
    local texts = cjson.decode(ARGV[ROWS])
    local members, positions, from = {}, {}, 1
    for i = 1, #texts, memberships and 3 or 2 do
      local length = memberships and texts[i + 2] or 0
      -- A score that tie bytes make exact lies beyond what a change may lead to.
      if length == 0 or string.byte(packed, from) ~= 0 then
        members[#members + 1], positions[#positions + 1] = texts[i + 1], i
      end
      from = from + length
    end
    if apply_pending(hashes, rule, members, texts, positions) > 0 then
      ARGV[ROWS] = cjson.encode(texts)
    end
  end
end
