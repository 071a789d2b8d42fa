-- uses: ties, positions, values
-- Ranks that count distinct values.

-- A member's rank less 1: the distinct values that rank better.
local function count_before(ranking, stored, score, position, order)
  local value = value_of(tie_of(stored, order.width), score)
  return redis.call(order.reverse and 'ZREVRANK' or 'ZRANK', values_key(ranking), value) or 0
end

-- The same of members that would have a score and these bytes.
local function count_before_bound(ranking, score, bytes, position, order)
  return count_better(values_key(ranking), score, bytes, order.reverse)
end
