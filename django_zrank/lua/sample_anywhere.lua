-- uses: clock, built, exclusions, cards, deck, carried, ties, positions, tests, bands, memory
-- Draw random distinct members near one member, half of them ranked before it and half after, in any kind of ranking: of
-- facets and groups, with ties and further criteria, by scores or by ranks. sample_nearby.lua is faster, without these.
--
-- KEYS  ranking   sorted set that is drawn from, stored member -> score
--       live      sorted set of the whole index, in which the member must stand
--       meta      hash of the index
--       seen      sorted set of members shown to this one -> until when, in microseconds; only where 'remember' is given
--       intersection  sorted set of the members that pass the tests, if there are tests and it has been made
--       …         the sorted sets that 'tests' are about
-- ARGV  member    the one to draw for: primary key as text
--       wanted    number of members to draw, at least 1
--       reverse   '1' if a higher score ranks better
--       bands     one or more bands to try in turn, each a distance below and one above: two doubles; for the measure
--                 'exact', two 64-bit integers, high byte first
--       excluded  primary keys never to offer (see lib/exclusions.lua); or nothing
--       numbers   random 48-bit numbers, 6 bytes each, little-endian
--       generation that the client believes to be live
--       width     tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       measure   'score', 'exact' (scores that may lie beyond 2^53) or 'ranks'
--       method    'ordinal', 'competition' or 'dense'
--       tests     tests that a member must pass, such as '+r2-g1': '+' or '-' (in one of its sets, or in none), 'r' or 'g'
--                 (rankings of stored members, or groups of primary keys) and the number of its sets; or nothing
--       patience  number of members that may fail the tests before giving up
--       remember  microseconds for which those drawn are not drawn again, unless no others are left; or nothing
--       since     the score that the member had before, as text; nothing for the first call
--       …         then stored members that earlier calls have drawn from the first band
-- Returns {'drawn', size of ranking, position of the asking one, band used (from 1), members in it beside that one,
--         then position, stored member, score of each drawn}; with methods other than ordinal {'ranked', the same, and
--         for each drawn also its rank less 1}. Positions count from 0 at the lowest score. {'not ranked'} if the member
--         is not in live; {'out of patience', the member's score, band that was tried, members in it, 'made' if the
--         intersection exists, else 'not made', size of ranking, first and last position of the band, position of the
--         asking one, then the stored members drawn so far} if too many failed the tests, or a side of more than 1,000
--         seems to be mostly excluded (3,000 with 'remember'); {'moved'} if the member's score is not 'since'; the errors
--         of lib/built.lua.
-- Cost  O((wanted + patience) * log(size)) and O(bytes of excluded). A side of up to so many is read whole if more than
--       about half of it is excluded. With 'remember' also up to 1,000 look-ups of those shown.

local ranking, live, meta, seen, intersection = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, wanted, reverse, bands, excluded, numbers, generation, width, memberships, measure, method, tests,
  patience, remember, since = unpack(ARGV, 1, 15)
local FIRST_TEST, FIRST = 6, 16
local call = redis.call
wanted, remember = tonumber(wanted), tonumber(remember)
local layout = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}

local me, score = find(live, member, layout)
if not score then
  require_live(meta, generation)
  return {'not ranked'}
end
if since ~= '' and since ~= score then
  return {'moved'}
end
local now = (remember or tests ~= '') and clock()
local draw = {numbers = numbers, wanted = wanted, patience = tonumber(patience), failed = 0, most = 1000}
if tests ~= '' then
  local checks = parse_tests(tests, KEYS, FIRST_TEST)
  ranking, draw.passes = smallest_ranking(checks, ranking), tester(checks, layout, live, now)
  draw.most = 512
end
if ARGV[FIRST] then
  draw.found, draw.put_back = {unpack(ARGV, FIRST)}, put_back
end
draw.ranking = ranking
local is_excluded, is_shown = exclusions(excluded), nil
if remember then
  forget_old(seen, now)
  is_shown = memory(seen)
  draw.most = draw.passes and 512 or 3000 -- more than twice as many as are remembered
end
function draw.is_barred(stored)
  local who = primary_key(stored, layout)
  return is_excluded(who) or is_shown and is_shown(who)
end

local size = call('ZCARD', ranking)
local position, among = call('ZRANK', ranking, me), 1
-- In an intersection, the asking one may still be where it was some seconds ago.
if not position or (ranking ~= live and call('ZSCORE', ranking, me) ~= score) then
  position, among = count_lower(ranking, score, me, false), 0
end
local asking = {stored = me, score = score, position = position, among = among}
local ends = measure == 'exact' and ends_exactly or measure == 'ranks' and ends_by_rank or ends_of_asking
local band, low, high = 0
repeat
  band = band + 1
  low, high = ends(ranking, asking, bands, band, layout)
  local before, after = deck(low, position - 1), deck(position + among, high)
  if layout.reverse then
    before, after = after, before
  end
  choose(draw, before, after, {'drawn', size, position, band, high - low + 1 - among})
  if draw.gave_up then
    local is_there = tests ~= '' and call('EXISTS', intersection) == 1
    local made = is_there and 'made' or 'not made'
    local reply = {'out of patience', score, band, high - low + 1 - among, made, size, low, high, position}
    for i = 7, 3 * draw.chosen + 5, 3 do
      reply[#reply + 1] = draw.reply[i]
    end
    return reply
  end
until draw.chosen == wanted or band * 16 == #bands

if remember then
  local function is_offered(who)
    return who ~= member and not is_excluded(who)
  end
  offer_again(draw, seen, live, layout, low, high, is_offered)
  local drawn = {}
  for i = 7, #draw.reply, 3 do
    drawn[#drawn + 1] = primary_key(draw.reply[i], layout)
  end
  memorize(drawn, seen, now + remember)
end
if method == 'ordinal' then
  return draw.reply
end
local drawn, reply = draw.reply, {'ranked', size, position, band, high - low + 1 - among}
for i = 6, #drawn, 3 do
  local at, stored, value = unpack(drawn, i, i + 2)
  local position, n = layout.reverse and size - 1 - at or at, #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = at, stored, value
  reply[n + 4] = count_before(ranking, stored, value, position, layout)
end
return reply
