-- uses: cards, bands, sort_keys, positions, ranks, exact
-- Both sides of a band, below and above the asking member, dealt at random.

-- The asking member, or what would stand in its place: as it is stored, its score, and if it is in 'live'. A word if there
-- is none: 'not ranked', or 'moved' if it is 'checked' and has another score. 'own', 'score' and 'stored' as in deal.lua.
local function asking_member(live, member, own, score, stored, layout)
  local is_given = score ~= ''
  if not is_given then
    stored, score = find(live, member, layout)
    if not score then
      return nil, 'not ranked'
    end
  end
  local is_here = own ~= 'other' and stands_at(live, stored, score)
  if own == 'checked' and not is_here then
    return nil, 'moved'
  end
  return {member = member, stored = stored, score = score, is_here = is_here, may_be_elsewhere = is_given and own == 'own'}
end

-- A side, as deal.lua is asked for it.
local function side_of(words)
  local wanted, most, skipped, at = struct.unpack('<I4I4I4', words)
  return {wanted = wanted, most = most, skipped = skipped, numbers = string.sub(words, at)}
end

-- The positions of the first and the last member in a band: 'measure' and 'band' as in deal.lua.
local function ends_of_band(ranking, measure, band, me, at, among, layout)
  local function count_to(limit, bytes)
    local first = redis.call('ZCOUNT', ranking, '-inf', bytes == '' and limit or '(' .. limit)
    return bytes == '' and first
      or search(ranking, first, redis.call('ZCOUNT', ranking, '-inf', limit), bytes, false)
  end
  if measure == 'score' then
    return ends_by_score(ranking, me.score, band, 1)
  elseif measure == 'exact' then
    return ends_exactly(ranking, me.score, me.stored, band, layout)
  elseif measure == 'ranks' then
    return ends_by_rank(ranking, at(), among, band)
  end
  local low, low_bytes, high, high_bytes = struct.unpack('<I4c0I4c0I4c0I4c0', band)
  return count_to(low, low_bytes), count_to(high, high_bytes) - 1
end

-- Deal some cards of a side: its number of members, 'whole' or 'some', and the cards, as deal.lua returns them.
local function deal_side(ranking, side, passes, small, barred, layout, size)
  local first, full, skipped, is_whole = side.first, side.full, side.skipped, side.full <= small
  local reply = {full, is_whole and 'whole' or 'some'}
  local function add(at, stored, score)
    local is_in, n = not passes or passes(stored), #reply
    if is_in or not is_whole then
      reply[n + 1], reply[n + 2] = is_in and stored, is_in and score
      if size then
        reply[n + 3] = is_in and count_before(ranking, stored, score, layout.reverse and size - 1 - at or at, layout)
      end
    end
    return is_in
  end
  if is_whole or side.numbers == '' then
    local start = is_whole and first or first + skipped
    local stop = math.min(first + full, is_whole and first + full or start + side.most) - 1
    local members = start <= stop and redis.call('ZRANGE', ranking, start, stop, 'WITHSCORES') or {}
    for i = 1, #members, 2 do
      add(start + (i - 1) / 2, members[i], members[i + 1])
    end
    return reply
  end
  local more = spare(side.wanted, barred, full)
  local dealing, used, passed = deck(first, first + full - 1), 0, 0
  for n = 1, math.min(full, skipped + side.most + more) do
    local card
    card, used = deal(dealing, side.numbers, used)
    if n > skipped then
      local found = redis.call('ZRANGE', ranking, first + card, first + card, 'WITHSCORES')
      passed = passed + (add(first + card, found[1], found[2]) and 1 or 0)
      if passed == side.wanted + more then
        break
      end
    end
  end
  return reply
end

-- Let each of two sides that are dealt make up for what the other has too few of.
local function make_up(below, above)
  if below.numbers == '' or above.numbers == '' then
    return
  end
  local function lacks(side)
    return math.max(0, side.wanted - math.max(0, side.full - side.skipped))
  end
  local below_lacks, above_lacks = lacks(below), lacks(above)
  below.wanted, below.most = below.wanted + above_lacks, below.most + above_lacks
  above.wanted, above.most = above.wanted + below_lacks, above.most + below_lacks
end

-- Deal from both sides of a band, cards that pass if there is 'passes'. Returns the number of members in the band without
-- the asking one, and both sides.
local function deal_band(ranking, live, me, measure, band, below, above, small, barred, layout, passes)
  local call, score, stored = redis.call, me.score, me.stored
  local among = me.is_here and (ranking == live or stands_at(ranking, stored, score)) and 1 or 0
  local from, to, position
  if among == 1 then
    position = call('ZRANK', ranking, stored)
  else
    from, to = call('ZCOUNT', ranking, '-inf', '(' .. score), call('ZCOUNT', ranking, '-inf', score)
  end
  local function find_position()
    position = position or search(ranking, from, to, stored, false)
    return position
  end
  local low, high = ends_of_band(ranking, measure, band, me, find_position, among, layout)

  -- Drawn around a position that isn't its own, a member may be in the band elsewhere.
  local elsewhere = 0
  if me.may_be_elsewhere and among == 0 then
    local at = find(live, me.member, layout)
    at = at and call('ZRANK', ranking, at)
    elsewhere = at and at >= low and at <= high and 1 or 0
  end

  -- The ends of both sides, each with all members that have the score of the asking one where its position isn't known.
  local function is_mostly_ties(span)
    return span > small and (to - from) * 4 > span
  end
  if not position and (is_mostly_ties(math.min(to, high + 1) - low) or is_mostly_ties(high + 1 - math.max(from, low))) then
    find_position()
  end
  local last = math.min(position or to, high + 1) - 1
  local first = math.max(position and position + among or from, low)
  below.first, below.full = low, math.max(0, last - low + 1)
  above.first, above.full = first, math.max(0, high - first + 1)

  make_up(below, above)
  local size = layout.method ~= '' and call('ZCARD', ranking)
  return math.max(0, high - low + 1) - among - elsewhere,
    deal_side(ranking, below, passes, small, barred, layout, size),
    deal_side(ranking, above, passes, small, barred, layout, size)
end
