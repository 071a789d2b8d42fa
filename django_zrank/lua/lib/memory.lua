-- uses: clock, positions
-- Members shown to a member, not to be drawn again: 'seen' is a sorted set, member -> until when, in microseconds.

-- The primary keys of the members that are remembered now, in the order in which they were shown.
local function recall(seen, now)
  redis.call('ZREMRANGEBYSCORE', seen, '-inf', integer(now))
  return redis.call('ZRANGE', seen, 0, -1)
end

-- Add remembered members between two positions to a draw (see lib/deck.lua) that has too few, the first ones first.
local function offer_again(draw, seen, live, layout, low, high, is_offered)
  for _, who in ipairs(draw.chosen < draw.wanted and redis.call('ZRANGE', seen, 0, -1) or {}) do
    if draw.chosen < draw.wanted and is_offered(who) then
      local stored, score = find(live, who, layout)
      local at = score and redis.call('ZRANK', draw.ranking, stored)
      if at and at >= low and at <= high and not (draw.passes and not draw.passes(stored)) then
        local reply, n = draw.reply, 3 * draw.chosen + 5
        reply[n + 1], reply[n + 2], reply[n + 3] = at, stored, score
        draw.chosen = draw.chosen + 1
      end
    end
  end
end

-- Remember members, by their primary keys, until a time. The newest 10,000 are kept.
local function memorize(members, seen, till)
  for _, who in ipairs(members) do
    redis.call('ZADD', seen, integer(till), who)
  end
  redis.call('ZREMRANGEBYRANK', seen, 0, -10001)
  local longest = redis.call('ZRANGE', seen, -1, -1, 'WITHSCORES')[2]
  if longest then
    redis.call('PEXPIREAT', seen, integer(longest / 1000))
  end
end
