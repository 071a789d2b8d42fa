-- The first and the last position of a band around a member. A band is its distances below and above.

-- For distances in scores: two doubles each, of the band of a number.
local function ends_by_score(ranking, score, bands, number)
  local below, above = struct.unpack('<dd', bands, number * 16 - 15)
  local low = redis.call('ZCOUNT', ranking, '-inf', string.format('(%.17g', score - below))
  return low, redis.call('ZCOUNT', ranking, '-inf', string.format('%.17g', score + above)) - 1
end

-- For distances in ranks: two doubles. 'among' is 1 if the member is in the ranking, 0 if that is where it would be.
local function ends_by_rank(ranking, position, among, band)
  local below, above = struct.unpack('<dd', band)
  return math.max(0, position - below), math.min(redis.call('ZCARD', ranking), position + among + above) - 1
end
