-- uses: built, clock, sides, tests, gathered
-- Deal among the members that pass several tests, as deal.lua deals in one ranking: cards are tested when they are dealt.
--
-- If all members that pass the tests are in a group that is small compared with the ranking, its members are gathered, and
-- only they are dealt: testing those of the ranking would take longer, and a kept combined filter wouldn't have new members.
--
-- KEYS  ranking  sorted set that is drawn from
--       live     sorted set of the whole index
--       meta     hash of the index
--       combined_filter  sorted set of the members that pass the tests, if it has been made
--       …        the sorted sets that 'tests' are about
-- ARGV  build that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       reverse  '1' if a higher score ranks better
--       method   the ranking method for the ranks of the cards; '' for none
--       member   primary key of the asking member
--       own      'own' if it belongs here; 'checked' if it must also have the score below; else 'other'
--       score    of the asking member; '' to look it up
--       stored   that member as it is stored; '' to look it up
--       measure  'score', 'exact' (scores that may lie beyond 2^53), 'ranks', or 'between'
--       band     its distances below and above, two doubles; for the measure 'exact', two 64-bit integers, high byte first;
--                for 'between', four texts, each after its length, 4 bytes, little-endian: the score before which it
--                begins, '(' before one that is in it; the bytes of the first member in it, among those with that score,
--                '' if it begins with a score; the score up to which it goes, '(' before one that is not in it; the bytes
--                of the first member after it, among those with that score, '' if it ends with a score
--       small    the most members of a side that is dealt whole
--       barred   number of members that the client may have to pass over: as they may be on this side, more are dealt
--       below    of members with lower scores, in 4 bytes each, little-endian: the number wanted, the number that may be
--                dealt to find these, and the number that were dealt before, by the same numbers; then random 48-bit numbers
--                for all, 6 bytes each, little-endian; none to deal in order
--       above    the same of those with higher scores
--       tests    tests that a member must pass, such as '+r2-g1': '+' or '-' (in one of its sets, or in none), 'r' or 'g'
--                (rankings of stored members, or groups of primary keys) and the number of its sets
--       gathering  '' to gather the members of small groups if that is quicker; 'yes' or 'no'
-- Returns what deal.lua returns, with nil for a card that fails the tests, which a whole side leaves out; and 'gathered', or
--         'made' if the combined filter exists, or ''. {'not gathered'} if groups are too large to be gathered; the errors of
--         lib/built.lua.
-- Cost  O((below_most + above_most + 2 * small) * (tests + log(size))), and about log2(ties) look-ups if a side is mostly
--       ties; 1 ms for each 300 members that are gathered.

local ranking, live, meta, combined_filter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local build, width, memberships, reverse, method, member, own, score, stored, measure, band, small, barred,
  below, above, tests, gathering = unpack(ARGV)
local FIRST_TEST = 5
local MOST = 1000 -- members that are gathered; with more, a call would take longer than 5 ms
local call = redis.call
local layout = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}

require_live(meta, build)
local me, refusal = asking_member(live, member, own, score, stored, layout)
if refusal then
  return {refusal}
end
local checks, now, aside = parse_tests(tests, KEYS, FIRST_TEST, live), clock(), combined_filter .. ':gathered'
local found, passes = call('EXISTS', combined_filter) == 1 and 'made' or '', nil
local size, groups = smallest_groups(checks)
ranking = smallest_ranking(checks, ranking)
-- If n of N members pass, it takes N / n tests to find one. To gather all takes as long as a draw if n is about 4 * sqrt(N).
local most = gathering == 'no' and 0 or MOST
if gathering == '' then
  most = math.min(most, 4 * math.sqrt(call('ZCARD', ranking)))
end
if size and size <= most and gather(aside, groups, checks, layout, live, now) then
  ranking, found = aside, 'gathered'
elseif gathering == 'yes' then
  return {'not gathered'}
else
  passes = tester(checks, layout, live, now)
end
local candidates, below_dealt, above_dealt = deal_band(ranking, live, me, measure, band, side_of(below),
  side_of(above), tonumber(small), barred, layout, passes)
if ranking == aside then
  call('UNLINK', aside)
end
return {'dealt', me.stored, me.score, candidates, below_dealt, above_dealt, found}
