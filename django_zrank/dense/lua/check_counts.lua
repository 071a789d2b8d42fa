-- uses: server, keys, ties, positions, values
-- Count the members that have distinct values of a ranking, at the moment at which the counts are read.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       meta        hash of the index
-- ARGV  build       that the server must hold
--       width       of the tie bytes
--       name        of the facet ranking, '' for the whole index
--       …           then values: tie bytes and the score as text; 100 at most
-- Returns {'checked', then for each value {number of members that have it, number counted ('' for none), 'right' if that
--         is the same and the value is listed with its score, or nobody has it and it is neither counted nor listed, else
--         'wrong'}}; {'superseded'} if the server holds another build, or is not the one that was written to.
-- Cost  O(values * log(size)).

local live, meta = KEYS[1], KEYS[2]
local build, width, name = unpack(ARGV, 1, 3)
local FIRST = 4
width = tonumber(width)

if not holds(meta, 'build', build) then
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

local reply = {'checked'}
for i = FIRST, #ARGV do
  local value = ARGV[i]
  local tie, score = read_membership(value, width)
  local right = count(value, tie, score)
  local counted = redis.call('HGET', counts_key(ranking), value)
  local listed = redis.call('ZSCORE', values_key(ranking), value)
  local is_listed = listed and (right == 0 or tonumber(listed) == tonumber(score))
  local is_right = counted == (right > 0 and tostring(right)) and is_listed == (right > 0)
  reply[#reply + 1] = {right, counted or '', is_right and 'right' or 'wrong'}
end
return reply
