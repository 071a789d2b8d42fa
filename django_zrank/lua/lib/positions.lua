-- uses: keys, ties, sort_keys
-- Positions in a ranking, a sorted set of stored members: tie bytes, then a primary key as text.

-- The stored form of a member, and its score; nothing if it is not ranked.
local function find(live, member, layout)
  if layout.width == 0 then
    local score = redis.call('ZSCORE', live, member)
    if score then
      return member, score
    end
  end
  local membership = layout.memberships and redis.call('HGET', memberships_key(live), member)
  if not membership then
    return
  end
  local stored = tie_of(membership, layout.width) .. member
  return stored, redis.call('ZSCORE', live, stored)
end

-- The number of members before the first one at 'score' whose bytes are not below 'bytes'; with 'past', before the first one
-- whose leading bytes are above them. Without bytes, no search is needed.
local function count_lower(ranking, score, bytes, past)
  if #bytes == 0 then
    return redis.call('ZCOUNT', ranking, '-inf', past and score or '(' .. score)
  end
  local low = redis.call('ZCOUNT', ranking, '-inf', '(' .. score)
  return search(ranking, low, redis.call('ZCOUNT', ranking, '-inf', score), bytes, past)
end

-- The number of members before a sort key, which may be that of a member elsewhere, the best or the lowest first;
-- and 1 if the member is here with that score, else 0.
local function position_of(ranking, score, stored, reverse)
  if stands_at(ranking, stored, score) then
    return redis.call(reverse and 'ZREVRANK' or 'ZRANK', ranking, stored), 1
  end
  local lower = count_lower(ranking, score, stored, false)
  return reverse and redis.call('ZCARD', ranking) - lower or lower, 0
end

-- The number of members, or values, that rank better than those with this score and these bytes.
local function count_better(ranking, score, bytes, reverse)
  if reverse then
    return redis.call('ZCARD', ranking) - count_lower(ranking, score, bytes, true)
  end
  return count_lower(ranking, score, bytes, false)
end
