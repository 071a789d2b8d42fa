-- uses: built, shard_keys, cards, sort_keys, positions, sides
-- Deal from the shards of one server as deal.lua deals from one index: the union of their members in the band.
--
-- KEYS  …        of each shard the sorted set that is drawn from, of the build that the client believes to be live
-- ARGV  width    as in deal.lua, and so on
--       memberships
--       reverse
--       method   '': ranks aren't known here
--       member
--       own
--       score
--       stored
--       measure
--       band
--       small
--       barred
--       below
--       above
--       at       the number of the shard of the asking member, from 1; 0 for none
-- Returns the same as deal.lua.
-- Cost  O((shards + below_most + above_most + 2 * small) * log(size)), and about log2(ties) look-ups in each shard if a side is
--       mostly ties.

local width, memberships, reverse, method, member, own, score, stored, measure, band, small, barred, below, above, at
  = unpack(ARGV)
local call = redis.call
local layout = {width = tonumber(width), memberships = memberships == '1', reverse = reverse == '1', method = method}
below, above, small, at = side_of(below), side_of(above), tonumber(small), tonumber(at)

local me, refusal = asking_member(at > 0 and shard_keys(KEYS[at]), member, own, score, stored, layout)

-- Of each shard the ends of its band, the number of its members with lower scores than the asking one, and with scores up to
-- that. Where there are none up to the end, its keys may have gone with its build. Rankings of facets go a moment later.
local parts, ties, candidates, is_other = {}, 0, 0, shard_keys(KEYS[1]) ~= KEYS[1]
local span_below, span_above = 0, 0
for shard, ranking in ipairs(KEYS) do
  if not refusal then
    local part = {ranking = ranking, among = 0}
    if shard == at and me.is_here and (not is_other or stands_at(ranking, me.stored, me.score)) then
      part.among, part.from = 1, call('ZRANK', ranking, me.stored)
      part.to = part.from
    else
      part.from, part.to = call('ZCOUNT', ranking, '-inf', '(' .. me.score), call('ZCOUNT', ranking, '-inf', me.score)
    end
    part.low, part.high = ends_of_band(ranking, measure, band, me, nil, part.among, layout)
    -- Drawn around a position that isn't its own, a member may be in the band elsewhere.
    local elsewhere = shard == at and me.may_be_elsewhere and part.among == 0
      and find(shard_keys(ranking), me.member, layout)
    elsewhere = elsewhere and call('ZRANK', ranking, elsewhere)
    elsewhere = elsewhere and elsewhere >= part.low and elsewhere <= part.high and 1 or 0
    candidates = candidates + math.max(0, part.high - part.low + 1) - part.among - elsewhere
    ties = ties + part.to - part.from
    span_below = span_below + math.max(0, math.min(part.to, part.high + 1) - part.low)
    span_above = span_above + math.max(0, part.high + 1 - math.max(part.from, part.low))
    parts[shard] = part
  end
  if refusal or is_other or parts[shard].high < 0 then
    local _, meta, build = shard_keys(ranking)
    require_live(meta, build)
  end
end
if refusal then
  return {refusal}
end

local function is_mostly_ties(span)
  return span > small and ties * 4 > span
end
local is_searched = is_mostly_ties(span_below) or is_mostly_ties(span_above)
below.parts, below.full, above.parts, above.full = {}, 0, {}, 0
local function add(side, ranking, first, count)
  if count > 0 then
    side.full, side.parts[#side.parts + 1] = side.full + count, {ranking = ranking, first = first, count = count}
  end
end
for _, part in ipairs(parts) do
  if is_searched then
    part.from = search(part.ranking, part.from, part.to, me.stored, false)
    part.to = part.from
  end
  local first = math.max(part.from + part.among, part.low)
  add(below, part.ranking, part.low, math.min(part.to, part.high + 1) - part.low)
  add(above, part.ranking, first, part.high + 1 - first)
end
make_up(below, above)

-- Deal some cards of a side, which are numbered from 0 through all shards.
local function deal_parts(side)
  local full, skipped, is_whole = side.full, side.skipped, side.full <= small
  local reply = {full, is_whole and 'whole' or 'some'}
  local function read(first, last)
    for _, part in ipairs(side.parts) do
      if first < part.count and last >= 0 then
        local start = part.first + math.max(first, 0)
        local found = call('ZRANGE', part.ranking, start, part.first + math.min(last, part.count - 1), 'WITHSCORES')
        for i = 1, #found do
          reply[#reply + 1] = found[i]
        end
      end
      first, last = first - part.count, last - part.count
      if last < 0 then
        return
      end
    end
  end
  if is_whole then
    read(0, full - 1)
  elseif side.numbers == '' then
    read(skipped, math.min(full, skipped + side.most) - 1)
  else
    local dealing, used, card = deck(0, full - 1), 0, nil
    for n = 1, math.min(full, skipped + side.most + spare(side.wanted, barred, full)) do
      card, used = deal(dealing, side.numbers, used)
      if n > skipped then
        read(card, card)
      end
    end
  end
  return reply
end

return {'dealt', me.stored, me.score, candidates, deal_parts(below), deal_parts(above)}
