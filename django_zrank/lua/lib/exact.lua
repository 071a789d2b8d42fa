-- uses: ties, positions
-- The first and the last position of a band around a member whose score may lie beyond 2^53.

-- The high and the low half of the 64-bit integer, 2^63 added, of a stored member whose score may lie beyond 2^53.
local function halves(stored, score, layout)
  if layout.width > 0 then
    return struct.unpack('>I4I4', stored)
  elseif tie_length(stored, 0) > 0 then
    return struct.unpack('>I4I4', stored, 2)
  end
  return math.floor(score / 2 ^ 32) + 2 ^ 31, score % 2 ^ 32
end

-- The number of members before such an integer, whose low half may overflow; with 'past', up to it.
local function count_exactly(ranking, high, low, layout, past)
  if low < 0 then
    high, low = high - 1, low + 2 ^ 32
  elseif low >= 2 ^ 32 then
    high, low = high + 1, low - 2 ^ 32
  end
  if high < 0 then
    high, low = 0, 0
  elseif high >= 2 ^ 32 then
    high, low = 2 ^ 32 - 1, 2 ^ 32 - 1
  end
  local score, bytes = (high - 2 ^ 31) * 2 ^ 32 + low, struct.pack('>I4I4', high, low)
  if layout.width == 0 then
    bytes = math.abs(score) < 2 ^ 53 and '' or '\0' .. bytes
  end
  return count_lower(ranking, string.format('%.17g', score), bytes, past)
end

-- For distances in scores that may lie beyond 2^53: 64-bit integers, high byte first.
local function ends_exactly(ranking, score, stored, band, layout)
  local high, low = halves(stored, score, layout)
  local below, below_low, above, above_low = struct.unpack('>I4I4I4I4', band)
  local first = count_exactly(ranking, high - below, low - below_low, layout, false)
  return first, count_exactly(ranking, high + above, low + above_low, layout, true) - 1
end
