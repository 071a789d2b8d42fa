-- Draws random distinct members near one member, half of them ranked before it and half after.
--
-- KEYS  live      sorted set, member -> score
--       meta      hash of the index
-- ARGV  member    whose neighbours are wanted, as stored
--       wanted    how many, at least 1
--       reverse   '1' where a higher score ranks better
--       bands     one or more bands to try in turn: distance below and above the score, two doubles each
--       excluded  members never to offer, a NUL byte before, between and after them; or nothing
--       numbers   random 48-bit numbers, 6 bytes each, little-endian
-- Returns {size of live, position, score, band used (from 1), members in it, then position, member, score of
--         each drawn}. Positions count from 0 at the lowest score. Nil where the member is not in live; the
--         error NOTBUILT where the index was never built.
-- Cost  O(wanted * log(size)) and O(bytes of excluded). Where more than about half of a side is excluded, that
--       side is read whole: no more than twice as many members as are excluded.

local live, meta = KEYS[1], KEYS[2]
local member, wanted, reverse, bands, excluded, numbers = unpack(ARGV)
wanted = tonumber(wanted)
local call = redis.call

local score = call('ZSCORE', live, member)
if not score then
  if call('HEXISTS', meta, 'generation') == 0 then
    return redis.error_reply('NOTBUILT the index is not built')
  end
  return false
end
local size = call('ZCARD', live)
local position = call('ZRANK', live, member)

-- To look a few members up, searching the text costs less than making a table of it.
local barred
local function is_barred(who)
  if barred then
    return barred[who]
  end
  return string.find(excluded, '\0' .. who .. '\0', 1, true)
end

local function make_table()
  barred = {}
  for who in string.gmatch(excluded, '%Z+') do
    barred[who] = true
  end
end
local nobody_barred = #excluded < 3
if wanted > 50 then
  make_table()
end

-- A number below m, every one equally likely: what would favour the low ones is drawn again. Of numbers up to
-- 2^48 the quotient of % is exact enough to be rounded right; of 53 bits it would not be.
local used
local function draw(m)
  local top, number = 2 ^ 48 - 2 ^ 48 % m
  repeat
    if used == #numbers then
      error('out of random numbers')
    end
    local a, b, c, d, e, f = string.byte(numbers, used + 1, used + 6)
    number = a + 256 * (b + 256 * (c + 256 * (d + 256 * (e + 256 * f))))
    used = used + 6
  until number < top
  return number % m
end

-- A side is a deck of the positions first … last. Dealing from it is Fisher and Yates's shuffle, of which only
-- the swaps made so far are kept. Once 'cards' holds its members, these are the deck.
local function deck(first, last)
  return {first = first, last = last, left = last - first + 1, swaps = {}, misses = 0}
end

local function deal(side)
  local i = draw(side.left)
  local card = side.swaps[i] or i
  side.left = side.left - 1
  side.swaps[i] = side.swaps[side.left] or side.left
  return card
end

local reply, chosen
local function choose(position, member, score)
  local n = 3 * chosen + 5
  reply[n + 1], reply[n + 2], reply[n + 3] = position, member, score
  chosen = chosen + 1
end

local function read(side)
  local members, cards = call('ZRANGE', live, side.first, side.last, 'WITHSCORES'), {}
  if not barred then
    make_table()
  end
  local dealt = {}
  for i = 7, #reply, 3 do
    dealt[reply[i]] = true
  end
  for i = 1, #members, 2 do
    if not barred[members[i]] and not dealt[members[i]] then
      cards[#cards + 1] = {side.first + (i - 1) / 2, members[i], members[i + 1]}
    end
  end
  side.cards, side.left, side.swaps = cards, #cards, {}
end

-- Chooses up to n members of a side. Many look-ups cost more than one range of a small side, and with many
-- misses most of the side is excluded: then it is read.
local function take(side, n)
  if not side.cards and side.left > 0 and side.left <= 8 * n then
    read(side)
  end
  local got = 0
  while got < n and side.left > 0 do
    if side.cards then
      choose(unpack(side.cards[deal(side) + 1]))
      got = got + 1
    else
      local at = side.first + deal(side)
      local found = call('ZRANGE', live, at, at, 'WITHSCORES')
      if nobody_barred or not is_barred(found[1]) then
        choose(at, found[1], found[2])
        got = got + 1
      else
        side.misses = side.misses + 1
        if side.misses > wanted + 16 then
          read(side)
        end
      end
    end
  end
end

local band, low, high = 0
repeat
  band = band + 1
  local below, above = struct.unpack('<dd', bands, band * 16 - 15)
  low = call('ZCOUNT', live, '-inf', string.format('(%.17g', score - below))
  high = call('ZCOUNT', live, '-inf', string.format('%.17g', score + above)) - 1
  local before, after = deck(low, position - 1), deck(position + 1, high)
  if reverse == '1' then
    before, after = after, before
  end
  -- Whether a band suffices does not depend on the numbers, so the next one may use them again.
  used, chosen = 0, 0
  reply = {size, position, score, band, high - low}
  take(before, math.ceil(wanted / 2))
  take(after, wanted - chosen)
  take(before, wanted - chosen)
until chosen == wanted or band * 16 == #bands
return reply
