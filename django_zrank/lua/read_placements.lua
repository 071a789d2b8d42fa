-- uses: built, keys, ties, positions, ranks
-- Read the ranks of a member in a ranking, and in the rankings of its facets.
--
-- KEYS  ranking  sorted set that the member has to be in
--       live     sorted set of the whole index
--       meta     hash of the index
-- ARGV  build that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       reverse  '1' if a higher score ranks better
--       method   the ranking method: 'ordinal', 'competition', or a part's
--       member   primary key
--       skip     the number of its rankings to leave out: those that are known already
--       most     the most rankings to read
--       …        then the facets, each by what the names of its rankings begin with, up to the colon
-- Returns {number of its rankings, stored member, score, then for each ranking {name, size, position, rank less 1, number of
--         members that are better}}, of which the first is that of the key, called ''; {'not ranked'} if the member is not in
--         that one; the errors of lib/built.lua.
-- Cost  O(most * log(size)), and log(ties) look-ups for each with several criteria.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local build, width, memberships, reverse, method, member, skip, most = unpack(ARGV, 1, 8)
local FIRST = 9
local call = redis.call
local order = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}

require_live(meta, build)
local stored, score = find(live, member, order)
if not score or not call('ZSCORE', ranking, stored) then
  return {'not ranked'}
end

local wanted, names = {}, {''}
for i = FIRST, #ARGV do
  wanted[ARGV[i]] = true
end
local membership = order.memberships and #ARGV >= FIRST and call('HGET', memberships_key(live), member) or ''
for name in string.gmatch(names_of(membership, order.width), '%Z+') do
  if wanted[string.match(name, '^[^:]+')] and ranking_key(live, name) ~= ranking then
    names[#names + 1] = name
  end
end

local reply = {#names, stored, score}
for i = skip + 1, math.min(#names, skip + most) do
  local key = i == 1 and ranking or ranking_key(live, names[i])
  local position = call(order.reverse and 'ZREVRANK' or 'ZRANK', key, stored)
  if position then
    local before, better = count_before(key, stored, score, position, order)
    if method == 'competition' then
      better = before
    else
      better = count_better(key, score, tie_of(stored, order.width), order.reverse)
    end
    reply[#reply + 1] = {names[i], call('ZCARD', key), position, before, better}
  end
end
return reply
