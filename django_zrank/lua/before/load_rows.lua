-- uses: clock, pending
-- Precedes load_rows.lua where scores begin in Redis: adds to each score what its row lacks of them.
--
-- KEYS  …         those of load_rows.lua, then
--       meta      hash of the index
--       pending   hash, member -> its pending change
-- ARGV  …         those of load_rows.lua, then
--       at        which of KEYS is 'meta'
--       rows      which of ARGV is 'rows'; 'packed' comes after it
--       stride    how many texts a row has
--       rule      'sum', 'max', 'min' or 'last'
--       flushed   the last flush that the database noted when the rows were read
-- Returns 0, with nothing written, where the rows are too old to tell what they lack.
-- Cost  O(rows), for each flush that they lack.

do
  local OWN = 5
  local count = #ARGV - OWN
  local at, rows, stride, rule, flushed = unpack(ARGV, count + 1, count + OWN)
  for i = count + OWN, count + 1, -1 do
    ARGV[i] = nil
  end
  rows, stride = tonumber(rows), tonumber(stride)
  local hashes = unflushed(KEYS[at + 1], KEYS[tonumber(at)], tonumber(flushed))
  if not hashes then
    return 0
  end
  if redis.call('EXISTS', unpack(hashes)) > 0 then
    local texts = cjson.decode(ARGV[rows])
    local members, positions, from = {}, {}, 1
    for i = 1, #texts, stride do
      -- A score that tie bytes make exact lies beyond what a change may lead to.
      if stride == 2 or texts[i + 2] == 0 or string.byte(ARGV[rows + 1], from) ~= 0 then
        members[#members + 1], positions[#positions + 1] = texts[i + 1], i
      end
      from = from + (stride == 3 and texts[i + 2] or 0)
    end
    if apply_pending(hashes, rule, members, texts, positions) > 0 then
      ARGV[rows] = cjson.encode(texts)
    end
  end
end
