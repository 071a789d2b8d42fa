-- uses: built, cards, sort_keys, clock, tests
-- Count the members of a band in a shard on either side of a member, and deal some of them at random. The client puts
-- together what the shards deal.
--
-- A side ends among the members with the score of the asking one. Finding that position takes a search, so the side is
-- dealt with all of these, and the client passes over those of the other side. The position is searched for only if they
-- are more than a quarter of the side.
--
-- KEYS  ranking  sorted set that is drawn from
--       live     sorted set of the whole shard
--       meta     hash of the shard
--       …        the sorted sets that 'tests' are about
-- ARGV  generation that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       score    of the asking member
--       stored   that member as it is stored
--       own      'own' if it belongs to this shard; 'checked' if it must also still have that score; else 'other'
--       low      the score before which the band begins, '(' before one that is in it
--       low_bytes   the bytes of the first member in it, among those with the score 'low'; '' if it begins with a score
--       high     the score up to which the band goes, '(' before one that is not in it
--       high_bytes  the bytes of the first member after it, among those with the score 'high'; '' if it ends with a score
--       tests    tests that a member must pass, as in sample_anywhere.lua; or nothing
--       small    the most members of a side that is dealt whole
--       below    number of members wanted with lower scores
--       below_skipped  number of these that were dealt before, by the same numbers
--       below_numbers  random 48-bit numbers for both, 6 bytes each, little-endian
--       above    the same of those with higher scores
--       above_skipped
--       above_numbers
-- Returns {'dealt', members in the band without the asking one, then for either side {its members, their number with all
--         that have the asking one's score, 'whole' or 'some' as it is dealt, then stored member and score of each that is dealt:
--         nil and nil for one that fails the tests, which a whole side leaves out}}; {'moved'} if the asking one must
--         have that score, and has another; the errors of lib/built.lua.
-- Cost  O((below + above + 2 * small) * log(size)), and about log2(ties) look-ups if a side is mostly ties.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local generation, width, memberships, score, stored, own, low, low_bytes, high, high_bytes, tests, small, below,
  below_skipped, below_numbers, above, above_skipped, above_numbers = unpack(ARGV, 1, 18)
local FIRST_TEST = 4
local call = redis.call

require_live(meta, generation)
local among = own ~= 'other' and stands_at(live, stored, score) and 1 or 0
if own == 'checked' and among == 0 then
  return {'moved'}
end
local passes
if tests ~= '' then
-- Libraries clock, tests come here.
  local checks = parse_tests(tests, KEYS, FIRST_TEST)
  local layout = {width = tonumber(width), memberships = memberships == '1'}
  ranking, passes = smallest_ranking(checks, ranking), tester(checks, layout, live, clock())
end
if among == 1 and ranking ~= live and not stands_at(ranking, stored, score) then
  among = 0
end
small = tonumber(small)

local function count_to(limit, bytes)
  local first = call('ZCOUNT', ranking, '-inf', bytes == '' and limit or '(' .. limit)
  return bytes == '' and first or search(ranking, first, call('ZCOUNT', ranking, '-inf', limit), bytes, false)
end

local from, to = call('ZCOUNT', ranking, '-inf', '(' .. score), call('ZCOUNT', ranking, '-inf', score)
low, high = count_to(low, low_bytes), count_to(high, high_bytes) - 1

-- The ends of both sides, each with all members that have the score of the asking one.
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
  local full = math.max(0, last - first + 1)
  if full <= small then
    local reply, members = {full, span, 'whole'}, full > 0 and call('ZRANGE', ranking, first, last, 'WITHSCORES') or {}
    for i = 1, #members, 2 do
      if not passes or passes(members[i]) then
        reply[#reply + 1], reply[#reply + 2] = members[i], members[i + 1]
      end
    end
    return reply
  end
  local reply, at, used = {full, span, 'some'}, 3, 0
  local side = wanted ~= '0' and deck(first, last)
  skipped = tonumber(skipped)
  for n = 1, side and math.min(full, skipped + wanted) or 0 do
    local card
    card, used = deal(side, numbers, used)
    if n > skipped then
      local found = call('ZRANGE', ranking, first + card, first + card, 'WITHSCORES')
      local is_in = not passes or passes(found[1])
      reply[at + 1], reply[at + 2] = is_in and found[1], is_in and found[2]
      at = at + 2
    end
  end
  return reply
end

return {
  'dealt', math.max(0, high - low + 1) - among,
  dealt(low, last, below_span, below, below_skipped, below_numbers),
  dealt(first, high, above_span, above, above_skipped, above_numbers),
}
