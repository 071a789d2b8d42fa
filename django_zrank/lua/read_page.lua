-- uses: built, positions, ranks, ties
-- Read consecutive members, best first.
--
-- KEYS  ranking  sorted set that is read
--       live     sorted set of the whole index
--       meta     hash of the index
-- ARGV  build that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       reverse  '1' if a higher score ranks better
--       method   the ranking method: 'ordinal', 'competition', or a part's
--       count    members of the page
--       most     the most members to read
--       from     start of the page: 'position', 'member', 'better', 'score' or 'sort key'
--       …        then for a position: the number of members before the first one
--                for a member: its primary key; the page has it in the middle, or reaches to an end of the ranking
--                for 'better': a primary key; the page has the last 'count' members ranked better, then the member, as if it
--                were the first of its equals
--                for scores: best and worst, each a score and its exact bytes, '' for no bound; and the number of members
--                in between to leave out
--                for a sort key, whether or not its member is here: score, stored member, and the number of members to read
--                before it; 'count' are read from there on
-- Returns {'page', size of ranking, position of the first, number of members to the end or the worst score, rank of the
--         first less 1, {stored member, score of each}}; {'not ranked'} if the member is not in the ranking; the errors
--         of lib/built.lua.
-- Cost  O(log(size) + most), and log(ties) look-ups with several criteria.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local build, width, memberships, reverse, method, count, most, from = unpack(ARGV, 1, 8)
local FIRST = 9
local call = redis.call
local order = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}
count = tonumber(count)

require_live(meta, build)
local size = call('ZCARD', ranking)

local first, last, me, mine = 0, size, nil, nil
if from == 'position' then
  first = tonumber(ARGV[FIRST])
elseif from == 'member' then
  local stored, score = find(live, ARGV[FIRST], order)
  local position = score and call(order.reverse and 'ZREVRANK' or 'ZRANK', ranking, stored)
  if not position then
    return {'not ranked'}
  end
  first = math.max(0, math.min(position - math.floor(count / 2), size - count))
elseif from == 'better' then
  me, mine = find(live, ARGV[FIRST], order)
  local better = mine and call(order.reverse and 'ZREVRANK' or 'ZRANK', ranking, me)
  if not better then
    return {'not ranked'}
  end
  mine = call('ZSCORE', ranking, me) -- that in a computed ranking may be some seconds old
  if method ~= 'ordinal' then
    better = count_better(ranking, mine, tie_of(me, order.width), order.reverse)
  end
  first = math.max(0, better - count)
  count = better - first
elseif from == 'sort key' then
  local score, stored, back = unpack(ARGV, FIRST, FIRST + 2)
  local position = position_of(ranking, score, stored, order.reverse)
  first = math.max(0, position - back)
  count = count + position - first
else
  local best, best_bytes, worst, worst_bytes, offset = unpack(ARGV, FIRST, FIRST + 4)
  if best ~= '' then
    first = count_better(ranking, best, best_bytes, order.reverse)
  end
  if worst ~= '' then
    last = size - count_better(ranking, worst, worst_bytes, not order.reverse)
  end
  first = first + offset
end

local members = {}
count = math.min(count, tonumber(most), last - first)
if count > 0 then
  if order.reverse then
    members = call('ZRANGE', ranking, first, first + count - 1, 'REV', 'WITHSCORES')
  else
    members = call('ZRANGE', ranking, first, first + count - 1, 'WITHSCORES')
  end
end
if me then
  members[#members + 1], members[#members + 2] = me, mine
end
local before = first
if members[1] then
  before = count_before(ranking, members[1], members[2], first, order)
elseif from == 'score' and ARGV[FIRST] ~= '' then
  before = count_before_bound(ranking, ARGV[FIRST], ARGV[FIRST + 1], first, order)
end
return {'page', size, first, math.max(0, last - first), before, members}
