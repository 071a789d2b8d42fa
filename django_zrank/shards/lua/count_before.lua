-- uses: built, sort_keys, positions, ranks
-- Count what is before sort keys in a shard. Most of them are of members of other shards.
--
-- KEYS  ranking  sorted set that is counted
--       live     sorted set of the whole shard
--       meta     hash of the shard
-- ARGV  build that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       reverse  '1' if a higher score ranks better
--       method   the ranking method: 'ordinal', 'competition', or a part's
--       …        then pairs: score, stored member
-- Returns {size of ranking, number of these members that are here with that score, then for each its rank less 1; nothing
--         by another method, as shards may share what it counts}; the errors of lib/built.lua.
-- Cost  O(members * log(size)), and about log2(ties) look-ups more for each ordinal.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local build, width, memberships, reverse, method = unpack(ARGV, 1, 5)
local FIRST = 6
local order = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}

require_live(meta, build)
local reply, here = {redis.call('ZCARD', ranking), 0}, 0
for i = FIRST, #ARGV, 2 do
  local score, stored, own = ARGV[i], ARGV[i + 1]
  if method == 'ordinal' then
    reply[#reply + 1], own = position_of(ranking, score, stored, order.reverse)
  else
    own = stands_at(ranking, stored, score) and 1 or 0
  end
  if method == 'competition' then
    reply[#reply + 1] = count_before(ranking, stored, score, nil, order)
  end
  here = here + own
end
reply[2] = here
return reply
