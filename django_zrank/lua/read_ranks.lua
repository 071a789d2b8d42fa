-- uses: built, positions, ranks
-- Read the ranks of members.
--
-- KEYS  ranking  sorted set that is read
--       live     sorted set of the whole index
--       meta     hash of the index
-- ARGV  build that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       reverse  '1' if a higher score ranks better
--       method   the ranking method: 'ordinal', 'competition', or a part's
--       …        then primary keys
-- Returns {size of ranking, then for each member {position, rank less 1, stored member, score}, or nil if it is not in the
--         ranking}; the errors of lib/built.lua.
-- Cost  O(members * log(size)), and log(ties) look-ups for each with several criteria.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local build, width, memberships, reverse, method = unpack(ARGV, 1, 5)
local FIRST = 6
local call = redis.call
local order = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}

require_live(meta, build)
local size = call('ZCARD', ranking)
local reply = {size}
for i = FIRST, #ARGV do
  local stored, score = find(live, ARGV[i], order)
  local position = score and call(order.reverse and 'ZREVRANK' or 'ZRANK', ranking, stored)
  if position then
    if ranking ~= live then
      -- The score in a computed ranking may be some seconds old.
      score = call('ZSCORE', ranking, stored)
    end
    reply[#reply + 1] = {position, count_before(ranking, stored, score, position, order), stored, score}
  else
    reply[#reply + 1] = false
  end
end
return reply
