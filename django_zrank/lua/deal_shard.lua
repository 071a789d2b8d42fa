-- uses: clock, built, cards, positions, tests, bands
-- Count the members of a band in a shard on either side of the asking one, and deal some of them at random. What each
-- shard deals is put together by the client.
--
-- KEYS  ranking  sorted set that is drawn from
--       live     sorted set of the whole shard
--       meta     hash of the shard
--       …        the sorted sets that 'tests' are about
-- ARGV  generation that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       score    of the asking member, which may belong to another shard
--       stored   how that one is stored
--       measure  'score', 'exact' (see sample_anywhere.lua) or 'places'
--       band     distance below and above the score, as sample_anywhere.lua takes one; of places nothing
--       tests    what else a member must pass, as sample_anywhere.lua takes it; or nothing
--       small    a side with no more members than this is dealt whole
--       below    how many are wanted of those with lower scores
--       below_skipped  how many of these were dealt before, by the same numbers
--       below_numbers  random 48-bit numbers for both, 6 bytes each, little-endian
--       above    the same of those with higher scores
--       above_skipped
--       above_numbers
--       …        then of places the first and the last member of the band, which may belong to other shards, each by its
--                score and as stored; '' and '' for no end
-- Returns {1 if the asking member stands in this shard with that score, 1 if it also stands in the ranking so, then for
--         either side {its members in the band, 1 if it is dealt whole, stored member and score of each that is dealt:
--         nil and nil for who fails the tests, of a whole side left out}}; the errors of lib/built.lua.
-- Cost  O((below + above + 2 * small) * log(size)), and about log2(ties) look-ups.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local generation, width, memberships, score, stored, measure, band, tests, small, below, below_skipped, below_numbers,
  above, above_skipped, above_numbers = unpack(ARGV, 1, 15)
local FIRST_TEST, FIRST = 4, 16
local call = redis.call
local layout = {width = tonumber(width), memberships = memberships == '1'}

local elsewhere = not_live(meta, generation)
if elsewhere then
  return elsewhere
end
local passes
if tests ~= '' then
  local checks = parse_tests(tests, KEYS, FIRST_TEST)
  ranking, passes = smallest_ranking(checks, ranking), tester(checks, layout, live, clock())
end
local position, among = count_to_place(ranking, score, stored, false)
local here = among
if ranking ~= live then
  here = stands_at(live, stored, score) and 1 or 0
end

local low, high
if measure == 'places' then
  local low_score, low_stored, high_score, high_stored = unpack(ARGV, FIRST, FIRST + 3)
  low, high = 0, call('ZCARD', ranking) - 1
  if low_score ~= '' then
    low = count_to_place(ranking, low_score, low_stored, false)
  end
  if high_score ~= '' then
    local last, is_here = count_to_place(ranking, high_score, high_stored, false)
    high = last + is_here - 1
  end
else
  local asking = {stored = stored, score = score, position = position, among = among}
  local ends = measure == 'exact' and ends_exactly or ends_of_asking
  low, high = ends(ranking, asking, band, 1, layout)
end

local function dealt(first, last, wanted, skipped, numbers)
  local side, cards, used = deck(first, last), {}, 0
  local full = math.max(0, side.left)
  if full <= tonumber(small) then
    local members = full > 0 and call('ZRANGE', ranking, first, last, 'WITHSCORES') or {}
    for i = 1, #members, 2 do
      if not passes or passes(members[i]) then
        cards[#cards + 1], cards[#cards + 2] = members[i], members[i + 1]
      end
    end
    return {full, 1, cards}
  end
  for n = 1, math.min(full, skipped + wanted) do
    local card
    card, used = deal(side, numbers, used)
    if n > tonumber(skipped) then
      local at = first + card
      local found = call('ZRANGE', ranking, at, at, 'WITHSCORES')
      local is_in = not passes or passes(found[1])
      cards[#cards + 1], cards[#cards + 2] = is_in and found[1], is_in and found[2]
    end
  end
  return {full, 0, cards}
end

return {
  here,
  among,
  dealt(low, position - 1, below, below_skipped, below_numbers),
  dealt(position + among, high, above, above_skipped, above_numbers),
}
