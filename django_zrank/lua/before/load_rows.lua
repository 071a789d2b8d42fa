-- uses: pending
-- Precedes load_rows.lua where scores begin in Redis: adds to each score what its row lacks of them.
--
-- KEYS  …         the three of load_rows.lua, then
--       pending   hash, member -> its pending change
-- ARGV  …         the six of load_rows.lua, then
--       rule      'sum', 'max', 'min' or 'last'
--       flushed   the last flush that the database noted when the rows were read
-- Returns {'superseded'}, with nothing written, where the rows are too old to tell what they lack.
-- Cost  O(rows), for each flush that they lack.

do
  local meta, pending = KEYS[3], KEYS[4]
  local ROWS = 5
  local packed, rule, flushed = unpack(ARGV, 6, 8)
  local hashes
  hashes, rule = unflushed(pending, meta, tonumber(flushed), rule)
  if not hashes then
    return {'superseded'}
  end
  if redis.call('EXISTS', unpack(hashes)) > 0 then
    local groups = cjson.decode(ARGV[ROWS])
    local members, scores, at, places, from = {}, {}, {}, {}, 1
    for _, group in ipairs(groups) do
      local tied = group[2]
      for i = 3, #group, 2 do
        -- A score that tie bytes make exact lies beyond what a change may lead to.
        if tied == 0 or string.byte(packed, from) ~= 0 then
          local count = #members + 1
          members[count], scores[count], at[count], places[count] = group[i + 1], group[i], count, {group, i}
        end
        from = from + tied
      end
    end
    if apply_pending(hashes, rule, members, scores, at) > 0 then
      for count, place in ipairs(places) do
        place[1][place[2]] = scores[count]
      end
      ARGV[ROWS] = cjson.encode(groups)
    end
  end
end
