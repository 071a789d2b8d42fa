-- uses: clock, built, cards, positions, tests, bands
-- Count the members of a band in a shard on either side of the asking one, and deal some of them at random. What each
-- shard deals is put together by the client.
--
-- A side ends among those who have the score of the asking one. To find where takes a search, so it is dealt with all of
-- them, and the client passes over those of the other side; where they are more than a quarter of it, they are searched.
--
-- KEYS  ranking  sorted set that is drawn from
--       live     sorted set of the whole shard
--       meta     hash of the shard
--       …        the sorted sets that 'tests' are about
-- ARGV  generation that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       score    of the asking member
--       stored   how that one is stored
--       own      '1' where it belongs to this shard; '2' where it also has to have that score still; '' where it doesn't
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
-- Returns {members in the band without the asking one, then for either side {members that it is dealt from, the number of
--         them with all who have that score, 1 if it is dealt whole, stored member and score of each that is dealt: nil
--         and nil for who fails the tests, of a whole side left out}}. {'moved'} where the asking one must have that
--         score, and has not; the errors of lib/built.lua.
-- Cost  O((below + above + 2 * small) * log(size)), and about log2(ties) look-ups where these are many of a side.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local generation, width, memberships, score, stored, own, measure, band, tests, small, below, below_skipped,
  below_numbers, above, above_skipped, above_numbers = unpack(ARGV, 1, 16)
local FIRST_TEST, FIRST = 4, 17
local call = redis.call

local elsewhere = not_live(meta, generation)
if elsewhere then
  return elsewhere
end
local among = own ~= '' and stands_at(live, stored, score) and 1 or 0
if own == '2' and among == 0 then
  return {'moved'}
end
local layout = {width = tonumber(width), memberships = memberships == '1'}
local passes
if tests ~= '' then
  local checks = parse_tests(tests, KEYS, FIRST_TEST)
  ranking, passes = smallest_ranking(checks, ranking), tester(checks, layout, live, clock())
end
if among == 1 and ranking ~= live and not stands_at(ranking, stored, score) then
  among = 0
end
small = tonumber(small)

local from, to = call('ZCOUNT', ranking, '-inf', '(' .. score), call('ZCOUNT', ranking, '-inf', score)
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
  local ends = measure == 'exact' and ends_exactly or ends_of_asking
  low, high = ends(ranking, {stored = stored, score = score}, band, 1, layout)
end
local inside = math.max(0, high - low + 1)

-- The ends of both sides, each with all who have the score of the asking one.
local last, first = math.min(to - 1, high), math.max(from, low)
local below_span, above_span = math.max(0, last - low + 1), math.max(0, high - first + 1)

local function is_mostly_ties(span)
  return span > small and (to - from) * 4 > span
end

if is_mostly_ties(below_span) or is_mostly_ties(above_span) then
  local position = among == 1 and call('ZRANK', ranking, stored) or search(ranking, from, to, stored, false)
  last, first = math.min(position - 1, high), math.max(position + among, low)
end

local function dealt(first, last, span, wanted, skipped, numbers)
  local side, cards, used = deck(first, last), {}, 0
  local full = math.max(0, side.left)
  if full <= small then
    local members = full > 0 and call('ZRANGE', ranking, first, last, 'WITHSCORES') or {}
    for i = 1, #members, 2 do
      if not passes or passes(members[i]) then
        cards[#cards + 1], cards[#cards + 2] = members[i], members[i + 1]
      end
    end
    return {full, span, 1, cards}
  end
  skipped = tonumber(skipped)
  for n = 1, math.min(full, skipped + wanted) do
    local card
    card, used = deal(side, numbers, used)
    if n > skipped then
      local at = first + card
      local found = call('ZRANGE', ranking, at, at, 'WITHSCORES')
      local is_in = not passes or passes(found[1])
      cards[#cards + 1], cards[#cards + 2] = is_in and found[1], is_in and found[2]
    end
  end
  return {full, span, 0, cards}
end

return {
  inside - among,
  dealt(low, last, below_span, below, below_skipped, below_numbers),
  dealt(first, high, above_span, above, above_skipped, above_numbers),
}
