-- uses: built, positions, values
-- Read the distinct values of a ranking that are better than a bound, best first.
--
-- KEYS  ranking  sorted set whose values are read
--       live     sorted set of the whole index
--       meta     hash of the index
-- ARGV  build that the client believes to be live
--       reverse  '1' if a higher score ranks better
--       score    of the bound
--       bytes    tie bytes of the bound
--       skipped  number of values to leave out
--       count    the most values to return, 1,000 at most
-- Returns {number of better values, then values: tie bytes, then the score as text}; the errors of lib/built.lua.
-- Cost  O(log(values) + skipped + count), and about log2(ties) look-ups.

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local build, reverse, score, bytes, skipped, count = unpack(ARGV)

require_live(meta, build)
local key = values_key(ranking)
local better = count_better(key, score, bytes, reverse == '1')
local last = math.min(better, skipped + count) - 1
if last < tonumber(skipped) then
  return {better}
end
return {better, unpack(redis.call(reverse == '1' and 'ZREVRANGE' or 'ZRANGE', key, skipped, last))}
