-- uses: server, keys, ties, memberships, positions
-- Find the distinct values of a ranking that are counted wrongly, and count them anew where that is wanted.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       meta        hash of the index
-- ARGV  generation  that the server must hold
--       width       of the tie bytes
--       repair        '1' to count anew
--       name        of the facet ranking, '' for the whole index
--       members     '1' where stored members follow, whose values are meant; else values follow
--       …           then stored members, or values: tie bytes and the score as text
-- Returns of each value that is counted wrongly in turn: the value, how many members have it, and how many were counted
--         ('' for none). Nil where the server holds another generation, or is not the one that was written to.
-- Cost  O(values * log(size)), and as often log2(members with the same score) where there are tie bytes.

local live, meta = KEYS[1], KEYS[2]
local generation, width, repair, name, members = unpack(ARGV, 1, 5)
local FIRST = 6
width = tonumber(width)

if not holds(meta, 'generation', generation) then
  return false
end
local ranking = name == '' and live or live .. ':' .. name

-- The number of members that have a value; none where its score is spelled in another way than the app would.
local function count(value, tie, score)
  local number = tonumber(score)
  if not number or number ~= number or value_of(tie, number) ~= value then
    return 0
  end
  return count_lower(ranking, score, tie, true) - count_lower(ranking, score, tie, false)
end

local reply, seen = {}, {}
for i = FIRST, #ARGV do
  local value = ARGV[i]
  local tie, score = read_membership(value, width)
  if members == '1' then
    score = redis.call('ZSCORE', ranking, ARGV[i])
    value = score and value_of(tie, score)
  end
  if value and not seen[value] then
    seen[value] = true
    local right = count(value, tie, score)
    local counted = redis.call('HGET', counts_key(ranking), value)
    local listed = redis.call('ZSCORE', values_key(ranking), value)
    local is_listed = listed and (right == 0 or tonumber(listed) == tonumber(score))
    if counted ~= (right > 0 and tostring(right)) or is_listed ~= (right > 0) then
      local n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3] = value, right, counted or ''
      if repair == '1' and right > 0 then
        redis.call('HSET', counts_key(ranking), value, right)
        redis.call('ZADD', values_key(ranking), score, value)
      elseif repair == '1' then
        redis.call('HDEL', counts_key(ranking), value)
        redis.call('ZREM', values_key(ranking), value)
      end
    end
  end
end
return reply
