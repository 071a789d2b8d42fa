-- uses: cards
-- Drawing members of a ranking without replacement.
-- A draw is a table: 'ranking', the sorted set; 'numbers', random ones as sample_nearby.lua takes them, and 'used', the
-- bytes of them that were; 'wanted', the number of members; 'reply', a word and four numbers, followed by position, stored
-- member and score of each that is chosen, and 'chosen', their number; 'most', the most members of a side that may be read
-- at once. Optional are functions of a stored member: 'is_barred', true if it must not be offered, and 'passes', true if
-- it passes the tests; 'failed' counts those that don't, up to 'patience'. 'put_back' chooses those of earlier calls again
-- (see lib/carried.lua). 'gave_up' is true if patience ran out, or a side that is too large to be read seems to be mostly
-- excluded.
-- A side is a deck (see lib/cards.lua). Once a side has been read, 'cards' holds the numbers of its 'members' to deal.

-- Read a side, and make a deck of its members that are offered and not chosen yet.
local function read(draw, side)
  local members, cards, dealt = redis.call('ZRANGE', draw.ranking, side.first, side.last, 'WITHSCORES'), {}, {}
  for i = 7, #draw.reply, 3 do
    dealt[draw.reply[i]] = true
  end
  for i = 1, #members, 2 do
    local stored = members[i]
    local is_out = dealt[stored] or (draw.is_barred and draw.is_barred(stored))
    if not is_out and not (draw.passes and not draw.passes(stored)) then
      cards[#cards + 1] = i
    end
  end
  side.members, side.cards, side.left, side.swaps = members, cards, #cards, {}
end

-- Choose members of a side until there are 'goal' in all. Reads the whole side if it is small, where one range costs less
-- than many look-ups, or if many misses show that most of it is excluded.
local function take(draw, side, goal)
  local call = redis.call
  local ranking, numbers, reply, is_barred, passes = draw.ranking, draw.numbers, draw.reply, draw.is_barred, draw.passes
  local chosen, used = draw.chosen, draw.used
  if draw.gave_up then
    return
  end
  if not side.cards and side.left > 0 and side.left <= math.min(8 * (goal - chosen), 1000, draw.most) then
    read(draw, side)
  end
  while chosen < goal and side.left > 0 do
    local card
    card, used = deal(side, numbers, used)
    local at, stored, score
    if side.cards then
      local i = side.cards[card + 1]
      at, stored, score = side.first + (i - 1) / 2, side.members[i], side.members[i + 1]
    else
      at = side.first + card
      stored, score = unpack(call('ZRANGE', ranking, at, at, 'WITHSCORES'))
    end
    if not side.cards and is_barred and is_barred(stored) then
      side.misses = side.misses + 1
      if side.misses > draw.wanted + 16 then
        if side.last - side.first >= draw.most then
          draw.gave_up = true
          break
        end
        read(draw, side)
      end
    elseif not side.cards and passes and not passes(stored) then
      draw.failed = draw.failed + 1
      if draw.failed > draw.patience then
        draw.gave_up = true
        break
      end
    else
      local n = 3 * chosen + 5
      reply[n + 1], reply[n + 2], reply[n + 3] = at, stored, score
      chosen = chosen + 1
    end
  end
  draw.chosen, draw.used = chosen, used
end

-- Choose half from each side, the odd one from before; one side makes up for what the other lacks. The random numbers don't
-- decide if a band suffices, so the next one may use them again.
local function choose(draw, before, after, reply)
  draw.reply, draw.chosen, draw.used = reply, 0, 0
  local half = math.ceil(draw.wanted / 2)
  if draw.put_back then
    half = math.min(draw.wanted, half + draw.put_back(draw, before, after))
  end
  take(draw, before, half)
  take(draw, after, draw.wanted)
  take(draw, before, draw.wanted)
end

-- The first and the last position of a band of scores, by its number: 'bands' are distances below and above a score, two
-- doubles each.
local function ends_by_score(ranking, score, bands, band)
  local below, above = struct.unpack('<dd', bands, band * 16 - 15)
  local low = redis.call('ZCOUNT', ranking, '-inf', string.format('(%.17g', score - below))
  return low, redis.call('ZCOUNT', ranking, '-inf', string.format('%.17g', score + above)) - 1
end
