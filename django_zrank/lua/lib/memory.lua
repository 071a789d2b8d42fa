-- uses: clock, keys, ties
-- Members shown to a member, not to be drawn again: 'seen' is a sorted set, member -> until when, in microseconds. The newest
-- 1,000 are remembered, because all of them may be looked up by one call.

-- Forget the members whose time is over.
local function forget_old(seen, now)
  redis.call('ZREMRANGEBYSCORE', seen, '-inf', integer(now))
end

-- The primary keys of the members that are remembered, in the order in which they were shown.
local function remembered(seen)
  return redis.call('ZRANGE', seen, -1000, -1)
end

-- A function from a primary key to true if it is remembered.
local function memory(seen)
  -- For a few members, look-ups are cheaper than a table of all.
  local look_ups, table_of = 0, nil
  return function(who)
    look_ups = look_ups + 1
    if look_ups == 100 then
      table_of = {}
      for _, one in ipairs(remembered(seen)) do
        table_of[one] = true
      end
    end
    if table_of then
      return table_of[who]
    end
    return redis.call('ZSCORE', seen, who)
  end
end

-- Add remembered members between two positions to a draw (see lib/deck.lua) that has too few, the first ones first.
local function offer_again(draw, seen, live, layout, low, high, is_offered)
  if draw.chosen == draw.wanted or low > high then
    return
  end
  local members = {}
  for _, who in ipairs(remembered(seen)) do
    if is_offered(who) then
      members[#members + 1] = who
    end
  end
  if #members == 0 then
    return
  end
  local held = layout.memberships and redis.call('HMGET', memberships_key(live), unpack(members)) or {}
  for i, who in ipairs(members) do
    members[i] = held[i] and tie_of(held[i], layout.width) .. who or who
  end
  local scores, ranking = redis.call('ZMSCORE', live, unpack(members)), draw.ranking
  local least = tonumber(redis.call('ZRANGE', ranking, low, low, 'WITHSCORES')[2])
  local most = tonumber(redis.call('ZRANGE', ranking, high, high, 'WITHSCORES')[2])
  for i, stored in ipairs(members) do
    local score = scores[i] and tonumber(scores[i])
    -- A position is searched for, a score is not.
    if score and score >= least and score <= most and not (draw.passes and not draw.passes(stored)) then
      local at = redis.call('ZRANK', ranking, stored)
      if at and at >= low and at <= high then
        local reply, n = draw.reply, 3 * draw.chosen + 5
        reply[n + 1], reply[n + 2], reply[n + 3] = at, stored, scores[i]
        draw.chosen = draw.chosen + 1
        if draw.chosen == draw.wanted then
          return
        end
      end
    end
  end
end

-- Remember members, by their primary keys, until a time.
local function memorize(members, seen, till)
  for first = 1, #members, 1000 do
    local added = {}
    for i = first, math.min(first + 999, #members) do
      added[#added + 1], added[#added + 2] = integer(till), members[i]
    end
    redis.call('ZADD', seen, unpack(added))
  end
  redis.call('ZREMRANGEBYRANK', seen, 0, -1001)
  local longest = redis.call('ZRANGE', seen, -1, -1, 'WITHSCORES')[2]
  if longest then
    redis.call('PEXPIREAT', seen, integer(longest / 1000))
  end
end
