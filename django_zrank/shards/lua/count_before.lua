-- uses: built, shard_keys, sort_keys, ties, positions
-- Count what is before sort keys in one shard, or in several on one server. Most of them are of members of other shards.
--
-- KEYS  ranking  sorted set that is counted
--       live     sorted set of the whole shard
--       meta     hash of the shard
--       …        of several shards only the first of each, of the build that the client believes to be live
-- ARGV  build that the client believes to be live; '' for several shards
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       reverse  '1' if a higher score ranks better
--       method   the ranking method: 'ordinal', 'competition', or a part's
--       sized    '1' to return the size of the ranking
--       …        then of each sort key: the number of the shard among these that may hold its member, from 1, 0 for none; score;
--                stored member. Without a score, the primary key of a member, which is looked up in its shard
-- Returns {size of ranking, or 0, number of these members that are here with that score, then for each its rank less 1; 0 by
--         another method, as shards may share what it counts}, all added up over these shards. In place of the rank of one
--         that is looked up {rank less 1, stored member, score}, or nil if it is not ranked. The errors of lib/built.lua.
-- Cost  O(shards * members * log(size)), and about log2(ties) look-ups more for each ordinal.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local build, width, memberships, reverse, method, sized = unpack(ARGV, 1, 6)
local FIRST = 7
local call = redis.call
local order = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}
local shards, is_checked, size, here, reply = build == '' and #KEYS or 1, {}, 0, 0, {}

local function keys_of(shard)
  if build == '' then
    return shard_keys(KEYS[shard])
  end
  return live, meta, build
end

local function check(shard)
  if not is_checked[shard] then
    local _, its_meta, its_build = keys_of(shard)
    require_live(its_meta, its_build)
    is_checked[shard] = true
  end
end

-- The ranking of all members goes with its build, so what is found there is live. Others go a moment later.
local is_other = ranking ~= keys_of(1)
for shard = 1, (is_other or sized == '1' or not ARGV[FIRST]) and shards or 0 do
  local members = call('ZCARD', KEYS[shard])
  size = size + members
  if is_other or members == 0 then
    check(shard)
  end
end

local is_best_last = order.reverse

-- The number of members of a shard that are before a sort key; with 'past', or equal to its leading bytes.
local function count_in(shard, score, bytes, past)
  local better, equal
  ranking = KEYS[shard]
  if is_best_last then
    better = call('ZCOUNT', ranking, '(' .. score, '+inf')
  else
    better = call('ZCOUNT', ranking, '-inf', '(' .. score)
  end
  equal = bytes ~= '' and call('ZCOUNT', ranking, score, score) or 0
  if equal > 0 then
    local first = is_best_last and call('ZCARD', ranking) - better - equal or better
    local lower = search(ranking, first, first + equal, bytes, past) - first
    return better + (is_best_last and equal - lower or lower)
  elseif better == 0 then
    check(shard)
  end
  return better
end

for i = FIRST, #ARGV, 3 do
  local own, score, stored = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  local is_wanted, ranked_in, is_here = score == '', KEYS[own], false
  if is_wanted then
    stored, score = find(keys_of(own), stored, order)
    if is_other and score then
      score = call('ZSCORE', ranked_in, stored)
    end
    is_here = score
    if not score then
      check(own)
    end
  elseif own > 0 then
    is_here = stands_at(ranked_in, stored, score)
  end
  local before, bytes = 0, stored
  if method == 'competition' and score then
    bytes = tie_of(stored, order.width)
  end
  for shard = 1, score and (method == 'ordinal' or method == 'competition') and shards or 0 do
    if is_here and shard == own and method == 'ordinal' then
      before = before + call(order.reverse and 'ZREVRANK' or 'ZRANK', ranked_in, stored)
    else
      before = before + count_in(shard, score, bytes, order.reverse and method == 'competition')
    end
  end
  here = here + (is_here and 1 or 0)
  if is_wanted then
    reply[#reply + 1] = is_here and {before, stored, score} or false
  else
    reply[#reply + 1] = before
  end
end
return {size, here, unpack(reply)}
