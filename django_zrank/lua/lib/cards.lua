-- Decks of cards, numbered from 0, dealt in uniform random order.

-- A deck of the positions first … last, dealt by a Fisher-Yates shuffle that only stores the swaps made so far.
local function deck(first, last)
  return {first = first, last = last, left = last - first + 1, swaps = {}}
end

-- The next card of a deck, and the number of bytes used so far of the random numbers: 48 bits each, little-endian.
local function deal(side, numbers, used)
  local left, swaps, number = side.left, side.swaps, nil
  -- A uniform number below 'left', by rejection of those that would favour low ones. For numbers up to 2^48, the quotient
  -- of % is exact enough to be rounded correctly; with 53 bits it would not be.
  local top = 2 ^ 48 - 2 ^ 48 % left
  repeat
    local a, b, c, d, e, f = string.byte(numbers, used + 1, used + 6)
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
  return card, used
end

-- The number of cards to deal beyond those wanted of a side, where some may have to be passed over: so few that they take
-- little time, so many that another round trip is seldom needed.
local function spare(wanted, barred, full)
  return math.min(100, math.ceil((wanted + 2) * math.min(2, 3 * barred / math.max(1, full))))
end
