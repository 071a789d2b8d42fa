-- Decks of cards, which are numbers from 0 up: each order of them is equally likely.

-- A deck of the positions first … last. Dealing from it is Fisher and Yates's shuffle, of which only the swaps made so
-- far are kept.
local function deck(first, last)
  return {first = first, last = last, left = last - first + 1, swaps = {}, misses = 0}
end

-- The next card of a deck, and the number of bytes that are used by then of random numbers: 48 bits each, little-endian.
local function deal(side, numbers, used)
  local left, swaps, number = side.left, side.swaps, nil
  -- A number below those left, every one equally likely: what would favour the low ones is drawn again. Of numbers up to
  -- 2^48 the quotient of % is exact enough to be rounded right; of 53 bits it would not be.
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
