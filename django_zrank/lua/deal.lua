-- uses: built, sides
-- Count the members of a band on either side of a member, and deal some of them at random: all draws but the plain one
-- of sample_nearby.lua. The client takes from these cards who may be offered.
--
-- If the member isn't in this ranking, each side ends among the members with its score. Finding that position takes a
-- search, so each side is dealt with all of these, and the client passes over those of the other side. The position is
-- searched for only if they are more than a quarter of a side.
--
-- KEYS  ranking  sorted set that is drawn from
--       live     sorted set of the whole index
--       meta     hash of the index
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
-- Returns {'dealt', the asking member as it is stored, its score, members in the band without it, then for either side {its
--         members, 'whole' or 'some' as it is dealt, then of each that is dealt the stored member, its score and, if there is
--         a method, its rank less 1}}. What one side has too few of is added to what is wanted of the other. {'not ranked'}
--         if a member that is looked up is not in live; {'moved'} if one is 'checked' and has another score; the errors of
--         lib/built.lua.
-- Cost  O((below_most + above_most + 2 * small) * log(size)), and about log2(ties) look-ups if a side is mostly ties.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local build, width, memberships, reverse, method, member, own, score, stored, measure, band, small, barred,
  below, above = unpack(ARGV)
local layout = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}

require_live(meta, build)
local me, refusal = asking_member(live, member, own, score, stored, layout)
if refusal then
  return {refusal}
end
local candidates, below_dealt, above_dealt = deal_band(ranking, live, me, measure, band, side_of(below),
  side_of(above), tonumber(small), barred, layout)
return {'dealt', me.stored, me.score, candidates, below_dealt, above_dealt}
