-- uses: ties, positions
-- Ranks that count members. A method that counts something else has this library in its package.

-- A member's rank less 1: the members that rank better, by the ranking method. 'position' is the number of members before
-- it.
local function count_before(ranking, stored, score, position, order)
  if order.method == 'ordinal' then
    return position
  end
  return count_better(ranking, score, tie_of(stored, order.width), order.reverse)
end

-- The same of members that would have a score and these bytes.
local function count_before_bound(ranking, score, bytes, position, order)
  return position
end
