-- Draws random distinct members near one member, half of them ranked before it and half after, where members are bare
-- primary keys: the main job. It is what sample_anywhere.lua does, without what most indexes have no use for: the more
-- of a script there is, the longer it takes before it does anything.
--
-- KEYS  live      sorted set of the index, primary key -> score
--       meta      hash of the index
-- ARGV  member    whose neighbours are wanted
--       wanted    how many, at least 1
--       reverse   '1' where a higher score ranks better
--       bands     one or more bands to try in turn: distance below and above the score, two doubles each
--       excluded  primary keys never to offer (see lib/exclusions.lua); or nothing
--       numbers   random 48-bit numbers, 6 bytes each, little-endian
-- Returns {size of the index, position of the asking one, band used (from 1), members in it beside that one, then
--         position, member, score of each drawn}. Positions count from 0 at the lowest score. Nil where the member is not in live; the
--         error NOTBUILT where the index was never built.
-- Cost  O(wanted * log(size)) and O(bytes of excluded). Where more than about half of a side is excluded, that
--       side is read whole: no more than twice as many members as are excluded.

local live, meta = KEYS[1], KEYS[2]
local member, wanted, reverse, bands, excluded, numbers = unpack(ARGV)
local call, byte = redis.call, string.byte
wanted = tonumber(wanted)

local score = call('ZSCORE', live, member)
if not score then
  if call('HEXISTS', meta, 'generation') == 0 then
    return redis.error_reply('NOTBUILT the index is not built')
  end
  return false
end
local size, position = call('ZCARD', live), call('ZRANK', live, member)
local is_excluded = #excluded > 2 and exclusions(excluded)

-- Makes those of a side that are neither excluded nor chosen its deck. It has at most twice as many as are excluded, or
-- so few that to look up those who are wanted would cost more.
local reply
local function read(side)
  local members, cards, chosen = call('ZRANGE', live, side.first, side.last, 'WITHSCORES'), {}, {}
  for i = 6, #reply, 3 do
    chosen[reply[i]] = true
  end
  for i = 1, #members, 2 do
    if not chosen[members[i]] and not (is_excluded and is_excluded(members[i])) then
      cards[#cards + 1] = i
    end
  end
  side.members, side.cards, side.left, side.swaps = members, cards, #cards, {}
end

-- Chooses members of a side until there are 'goal' in all. A side is a deck of the positions from 'first' to 'last'; dealing
-- from it is Fisher and Yates's shuffle, of which only the swaps made so far are kept.
local chosen, used
local function take(side, goal)
  if not side.cards and side.left > 0 and side.left <= 8 * (goal - chosen) then
    read(side)
  end
  while chosen < goal and side.left > 0 do
    -- A number below those left, every one equally likely: what would favour the low ones is drawn again. Of numbers up
    -- to 2^48 the quotient of % is exact enough to be rounded right; of 53 bits it would not be.
    local left, swaps, number = side.left, side.swaps, nil
    local top = 2 ^ 48 - 2 ^ 48 % left
    repeat
      local a, b, c, d, e, f = byte(numbers, used + 1, used + 6)
      if not f then
        error('out of random numbers')
      end
      number = a + 256 * (b + 256 * (c + 256 * (d + 256 * (e + 256 * f))))
      used = used + 6
    until number < top
    local i = number % left
    local card = swaps[i] or i
    left = left - 1
    side.left, swaps[i] = left, swaps[left] or left

    local at, who, value
    if side.cards then
      local i = side.cards[card + 1]
      at, who, value = side.first + (i - 1) / 2, side.members[i], side.members[i + 1]
    else
      at = side.first + card
      who, value = unpack(call('ZRANGE', live, at, at, 'WITHSCORES'))
    end
    if not side.cards and is_excluded and is_excluded(who) then
      side.misses = side.misses + 1
      if side.misses > wanted + 16 then
        read(side)
      end
    else
      local n = 3 * chosen + 4
      reply[n + 1], reply[n + 2], reply[n + 3] = at, who, value
      chosen = chosen + 1
    end
  end
end

local band = 0
repeat
  band = band + 1
  local below, above = struct.unpack('<dd', bands, band * 16 - 15)
  local low = call('ZCOUNT', live, '-inf', string.format('(%.17g', score - below))
  local high = call('ZCOUNT', live, '-inf', string.format('%.17g', score + above)) - 1
  local before = {first = low, last = position - 1, left = position - low, swaps = {}, misses = 0}
  local after = {first = position + 1, last = high, left = high - position, swaps = {}, misses = 0}
  if reverse == '1' then
    before, after = after, before
  end
  -- Whether a band suffices does not depend on the numbers, so the next one may use them again.
  used, chosen = 0, 0
  reply = {size, position, band, high - low}
  take(before, math.ceil(wanted / 2))
  take(after, wanted)
  take(before, wanted)
until chosen == wanted or band * 16 == #bands
return reply
