-- uses: ties, bulk, values
-- Distinct values beside each ranking, and the number of members that have each.

-- The keys beside a ranking: the one that ranks are read from, then those that only writes need.
local function keys_beside(ranking)
  return {values_key(ranking), counts_key(ranking)}
end

-- True if some of the keys of a ranking, its distinct values and their counts are missing, but not all: Redis evicted them.
local function is_torn(ranking)
  return redis.call('EXISTS', ranking, values_key(ranking), counts_key(ranking)) % 3 > 0
end

-- Update the counts of distinct values for stored members that are about to leave a sorted set, and for pairs of a score and a
-- stored member that are about to enter it. Counts follow this very key, so they stay right even if a membership was wrong.
local function change_beside(key, leaving, entering, width)
  local all, scores, changes, now = {}, {}, {}, {} -- now: of those that were counted already
  for i, stored in ipairs(leaving) do
    all[i] = stored
  end
  for i = 2, #entering, 2 do
    all[#all + 1] = entering[i]
  end
  local held = read_all('ZMSCORE', key, all)
  local function count(stored, score, by)
    if score then
      local value = value_of(tie_of(stored, width), score)
      changes[value] = (changes[value] or 0) + by
      scores[value] = score
    end
  end
  for i, stored in ipairs(leaving) do
    count(stored, now[stored] == nil and held[i], -1)
    now[stored] = false
  end
  for i = 2, #entering, 2 do
    local score, stored = entering[i - 1], entering[i]
    local before = now[stored]
    if before == nil then
      before = held[#leaving + i / 2]
    end
    now[stored] = score
    if not before or tonumber(before) ~= tonumber(score) then
      count(stored, before, -1)
      count(stored, score, 1)
    end
  end
  local values, set, gone, ranked = {}, {}, {}, {}
  for value, by in pairs(changes) do
    if by ~= 0 then
      values[#values + 1] = value
    end
  end
  for i, before in ipairs(read_all('HMGET', counts_key(key), values)) do
    local value = values[i]
    local after = (tonumber(before) or 0) + changes[value]
    if after < 1 then
      gone[#gone + 1] = value
    else
      set[#set + 1], set[#set + 2] = value, after
      ranked[#ranked + 1], ranked[#ranked + 2] = scores[value], value
    end
  end
  write_all('HDEL', counts_key(key), gone)
  write_all('ZREM', values_key(key), gone)
  write_all('HSET', counts_key(key), set)
  write_all('ZADD', values_key(key), ranked)
end
