-- uses: server, keys, ties, positions
-- Find the distinct values of a ranking that are counted wrongly, and optionally correct the counts.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       meta        hash of the index
-- ARGV  generation  that the server must hold
--       width       of the tie bytes
--       repair      '1' to correct the counts
--       name        of the facet ranking, '' for the whole index
--       …           then values: tie bytes and the score as text
-- Returns {'checked', then for each value, until the budget of look-ups is spent: {number of members that have it, number
--         counted ('' for none)} if it is counted wrongly, else nil}; {'superseded'} if the server holds another
--         generation, or is not the one that was written to.
-- Cost  O(1000 * log(size)).

local live, meta = KEYS[1], KEYS[2]
local generation, width, repair, name = unpack(ARGV, 1, 4)
local FIRST = 5
width = tonumber(width)

if not holds(meta, 'generation', generation) then
  return {'superseded'}
end
local ranking = ranking_key(live, name)

-- The number of members that have a value; 0 if its score is not spelled as the app spells it.
local function count(value, tie, score)
  local number = tonumber(score)
  if not number or number ~= number or value_of(tie, number) ~= value then
    return 0
  end
  return count_lower(ranking, score, tie, true) - count_lower(ranking, score, tie, false)
end

local reply, i, spent, BUDGET = {'checked'}, FIRST, 0, 1000
while i <= #ARGV and spent < BUDGET do
  local value = ARGV[i]
  local tie, score = read_membership(value, width)
  local right = count(value, tie, score)
  local counted = redis.call('HGET', counts_key(ranking), value)
  local listed = redis.call('ZSCORE', values_key(ranking), value)
  local is_listed = listed and (right == 0 or tonumber(listed) == tonumber(score))
  local is_wrong = counted ~= (right > 0 and tostring(right)) or is_listed ~= (right > 0)
  reply[#reply + 1] = is_wrong and {right, counted or ''}
  if is_wrong and repair == '1' and right > 0 then
    redis.call('HSET', counts_key(ranking), value, right)
    redis.call('ZADD', values_key(ranking), score, value)
  elseif is_wrong and repair == '1' then
    redis.call('HDEL', counts_key(ranking), value)
    redis.call('ZREM', values_key(ranking), value)
  end
  -- Two binary searches find the members with these tie bytes among those with the score.
  spent = spent + (tie == '' and 8 or 50)
  i = i + 1
end
return reply
