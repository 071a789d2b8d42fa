-- uses: built, exclusions, cards, deck
-- Draw random distinct members near one member, half of them ranked before it and half after, where members are bare
-- primary keys: the main job. Does what sample_anywhere.lua does, without what most indexes don't need: the longer a
-- script, the longer it takes to start.
--
-- KEYS  live      sorted set of the index, primary key -> score
--       meta      hash of the index
-- ARGV  member    the one to draw for
--       wanted    number of members to draw, at least 1
--       reverse   '1' if a higher score ranks better
--       bands     one or more bands to try in turn: distance below and above the score, two doubles each
--       excluded  primary keys never to offer (see lib/exclusions.lua); or nothing
--       numbers   random 48-bit numbers, 6 bytes each, little-endian
--       generation that the client believes to be live
-- Returns {'drawn', size of the index, position of the asking one, band used (from 1), members in it beside that one,
--         then position, member, score of each drawn}. Positions count from 0 at the lowest score. {'not ranked'} if
--         the member is not in live; {'out of patience', its score, band that was tried, members in it, 'not made', size
--         of the index, first and last position of the band, position of the asking one} if a side of more than 1,000
--         seems to be mostly excluded; the errors of lib/built.lua.
-- Cost  O(wanted * log(size)) and O(bytes of excluded). A side of up to 1,000 is read whole if more than about half of
--       it is excluded.

local live, meta = KEYS[1], KEYS[2]
local member, wanted, reverse, bands, excluded, numbers, generation = unpack(ARGV)
local call = redis.call

local score = call('ZSCORE', live, member)
if not score then
  require_live(meta, generation)
  return {'not ranked'}
end
local size, position = call('ZCARD', live), call('ZRANK', live, member)
local draw = {ranking = live, numbers = numbers, wanted = tonumber(wanted), most = 1000}
if #excluded > 1 then
  draw.is_barred = exclusions(excluded)
end

local band, low, high = 0
repeat
  band = band + 1
  low, high = ends_by_score(live, score, bands, band)
  local before, after = deck(low, position - 1), deck(position + 1, high)
  if reverse == '1' then
    before, after = after, before
  end
  choose(draw, before, after, {'drawn', size, position, band, high - low})
until draw.chosen == draw.wanted or band * 16 == #bands or draw.gave_up
if draw.gave_up then
  return {'out of patience', score, band, high - low, 'not made', size, low, high, position}
end
return draw.reply
