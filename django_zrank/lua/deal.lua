-- uses: built, cards, bands, sort_keys, positions, exact, clock, tests, gathered
-- Count the members of a band on either side of a member, and deal some of them at random: all draws but the plain one
-- of sample_nearby.lua. The client takes from these cards who may be offered; from several shards, in turn.
--
-- If the member isn't in this ranking, each side ends among the members with its score. Finding that position takes a
-- search, so each side is dealt with all of these, and the client passes over those of the other side. The position is
-- searched for only if they are more than a quarter of a side.
--
-- If all members that pass the tests are in a group that is small compared with the ranking, its members are gathered, and
-- only they are dealt: testing those of the ranking would take longer, and a kept intersection wouldn't have new members.
--
-- KEYS  ranking  sorted set that is drawn from
--       live     sorted set of the whole index, or of a shard
--       meta     hash of the index
--       seen     sorted set of members shown to the asking one -> until when, in microseconds
--       intersection  sorted set of the members that pass the tests, if it has been made; only if there are tests
--       …        the sorted sets that 'tests' are about
-- ARGV  generation that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       reverse  '1' if a higher score ranks better
--       method   'ordinal', 'competition' or 'dense' for the ranks of the cards; '' for none
--       member   primary key of the asking member
--       own      'own' if it belongs here; 'checked' if it must also have the score below; else 'other'
--       score    of the asking member; '' to look it up
--       stored   that member as it is stored; '' to look it up
--       measure  'score', 'exact' (scores that may lie beyond 2^53), 'ranks', or 'between'
--       low      the band: its distances below and above, two doubles; for the measure 'exact', two 64-bit integers, high
--                byte first; for 'between', the score before which it begins, '(' before one that is in it
--       low_bytes   for 'between', the bytes of the first member in it, among those with the score 'low'; '' if it begins
--                with a score
--       high     for 'between', the score up to which it goes, '(' before one that is not in it
--       high_bytes  the bytes of the first member after it, among those with the score 'high'; '' if it ends with a score
--       tests    tests that a member must pass, such as '+r2-g1': '+' or '-' (in one of its sets, or in none), 'r' or 'g'
--                (rankings of stored members, or groups of primary keys) and the number of its sets; or nothing
--       gathering  '' to gather the members of small groups if that is quicker; 'yes' or 'no'
--       shown    '1' to return the members in 'seen'
--       small    the most members of a side that is dealt whole
--       barred   number of members that the client may have to pass over: as they may be on this side, more are dealt
--       below    number of members wanted with lower scores
--       below_most     number of members that may be dealt to find these
--       below_skipped  number of members that were dealt before, by the same numbers
--       below_numbers  random 48-bit numbers for all, 6 bytes each, little-endian; '' to deal in order
--       above    the same of those with higher scores
--       above_most
--       above_skipped
--       above_numbers
-- Returns {'dealt', the asking member as it is stored, its score, members in the band without it, 'gathered', or 'made' if
--         the intersection exists, or '', the primary keys of the newest 1,000 members that were shown (the last one first),
--         then for either side {its members, 'whole' or 'some' as it is dealt, then of each that is dealt the stored member,
--         its score and, if there is a method, its rank less 1: nil for one that fails the tests, which a whole side leaves
--         out}}. What one side has too few of is added to what is wanted of the other. {'not ranked'} if a member that is
--         looked up is not in live; {'not gathered'} if groups are too large to be gathered; {'moved'} if one is 'checked'
--         and has another score; the errors of lib/built.lua.
-- Cost  O((below_most + above_most + 2 * small) * log(size)), and about log2(ties) look-ups if a side is mostly ties; 1 ms
--       for each 300 members that are gathered.

local ranking, live, meta, seen, intersection = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local generation, width, memberships, reverse, method, member, own, score, stored, measure, low, low_bytes, high,
  high_bytes, tests, gathering, shown, small, barred, below, below_most, below_skipped, below_numbers, above, above_most,
  above_skipped, above_numbers = unpack(ARGV)
local FIRST_TEST = 6
local MOST = 1000 -- members that are gathered; with more, a call would take longer than 5 ms
local call = redis.call
local layout = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}

require_live(meta, generation)
local is_given = score ~= ''
if not is_given then
  stored, score = find(live, member, layout)
  if not score then
    return {'not ranked'}
  end
end
local among = own ~= 'other' and stands_at(live, stored, score) and 1 or 0
if own == 'checked' and among == 0 then
  return {'moved'}
end
local passes
local made, gathered = tests ~= '' and call('EXISTS', intersection) == 1 and 'made' or '', nil
if tests ~= '' then
  local checks, now, aside = parse_tests(tests, KEYS, FIRST_TEST, live), clock(), intersection .. ':gathered'
  local size, groups = smallest_groups(checks)
  ranking = smallest_ranking(checks, ranking)
  -- If n of N members pass, it takes N / n tests to find one. To gather all takes as long as a draw if n is about 4 * sqrt(N).
  local most = gathering == 'no' and 0 or MOST
  if gathering == '' then
    most = math.min(most, 4 * math.sqrt(call('ZCARD', ranking)))
  end
  if size and size <= most and gather(aside, groups, checks, layout, live, now) then
    gathered, made = aside, 'gathered'
    ranking = gathered
  elseif gathering == 'yes' then
    return {'not gathered'}
  else
    passes = tester(checks, layout, live, now)
  end
end
if among == 1 and ranking ~= live and not stands_at(ranking, stored, score) then
  among = 0
end

local function count_to(limit, bytes)
  local first = call('ZCOUNT', ranking, '-inf', bytes == '' and limit or '(' .. limit)
  return bytes == '' and first or search(ranking, first, call('ZCOUNT', ranking, '-inf', limit), bytes, false)
end

local from, to, position
if among == 1 then
  position = call('ZRANK', ranking, stored)
else
  from, to = call('ZCOUNT', ranking, '-inf', '(' .. score), call('ZCOUNT', ranking, '-inf', score)
end
if measure == 'score' then
  low, high = ends_by_score(ranking, score, low, 1)
elseif measure == 'exact' then
  low, high = ends_exactly(ranking, score, stored, low, layout)
elseif measure == 'ranks' then
  position = position or search(ranking, from, to, stored, false)
  low, high = ends_by_rank(ranking, position, among, low)
else
  low, high = count_to(low, low_bytes), count_to(high, high_bytes) - 1
end

-- Drawn around a position that isn't its own, a member may be in the band elsewhere.
local elsewhere = 0
if is_given and own == 'own' and among == 0 then
  local at = find(live, member, layout)
  at = at and call('ZRANK', ranking, at)
  elsewhere = at and at >= low and at <= high and 1 or 0
end

-- The ends of both sides, each with all members that have the score of the asking one where its position isn't known.
small = tonumber(small)
local function is_mostly_ties(span)
  return span > small and (to - from) * 4 > span
end
if not position and (is_mostly_ties(math.min(to, high + 1) - low) or is_mostly_ties(high + 1 - math.max(from, low))) then
  position = search(ranking, from, to, stored, false)
end
local last = math.min(position or to, high + 1) - 1
local first = math.max(position and position + among or from, low)


-- A side of so many members, from a position on.
local function side(first, full, wanted, most, skipped, numbers)
  return {first = first, full = math.max(0, full), wanted = tonumber(wanted), most = tonumber(most),
    skipped = tonumber(skipped), numbers = numbers}
end
below = side(low, last - low + 1, below, below_most, below_skipped, below_numbers)
above = side(first, high - first + 1, above, above_most, above_skipped, above_numbers)
if below_numbers ~= '' and above_numbers ~= '' then
  local function lacks(side)
    return math.max(0, side.wanted - math.max(0, side.full - side.skipped))
  end
  local below_lacks, above_lacks = lacks(below), lacks(above)
  below.wanted, below.most = below.wanted + above_lacks, below.most + above_lacks
  above.wanted, above.most = above.wanted + below_lacks, above.most + below_lacks
end

local size = method ~= '' and call('ZCARD', ranking)
local function dealt(side)
  local first, full, skipped, is_whole = side.first, side.full, side.skipped, side.full <= small
  local reply = {full, is_whole and 'whole' or 'some'}
  local function add(at, stored, score)
    local is_in, n = not passes or passes(stored), #reply
    if is_in or not is_whole then
      reply[n + 1], reply[n + 2] = is_in and stored, is_in and score
      if size then
        reply[n + 3] = is_in and count_before(ranking, stored, score, layout.reverse and size - 1 - at or at, layout)
      end
    end
    return is_in
  end
  if is_whole or side.numbers == '' then
    local start = is_whole and first or first + skipped
    local stop = math.min(first + full, is_whole and first + full or start + side.most) - 1
    local members = start <= stop and call('ZRANGE', ranking, start, stop, 'WITHSCORES') or {}
    for i = 1, #members, 2 do
      add(start + (i - 1) / 2, members[i], members[i + 1])
    end
    return reply
  end
  local more = spare(side.wanted, barred, full)
  local dealing, used, passed = deck(first, first + full - 1), 0, 0
  for n = 1, math.min(full, skipped + side.most + more) do
    local card
    card, used = deal(dealing, side.numbers, used)
    if n > skipped then
      local found = call('ZRANGE', ranking, first + card, first + card, 'WITHSCORES')
      passed = passed + (add(first + card, found[1], found[2]) and 1 or 0)
      if passed == side.wanted + more then
        break
      end
    end
  end
  return reply
end

shown = shown == '1' and call('ZREVRANGEBYSCORE', seen, '+inf', '(' .. integer(clock()), 'LIMIT', 0, 1000) or {}
local reply = {'dealt', stored, score, math.max(0, high - low + 1) - among - elsewhere, made, shown, dealt(below), dealt(above)}
if gathered then
  call('UNLINK', gathered)
end
return reply
