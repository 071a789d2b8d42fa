-- uses: built, cards, bands
-- Draw random distinct members near one member, half of them ranked before it and half after, where members are bare
-- primary keys: the main job. deal.lua deals in rankings of facets, with ties and further criteria, and by ranks; the
-- longer a script, the longer it takes to start.
--
-- KEYS  live      sorted set of the index, primary key -> score
--       meta      hash of the index
-- ARGV  member    the one to draw for
--       wanted    number of members to draw, at least 1
--       reverse   '1' if a higher score ranks better
--       bands     one or more bands to try in turn: distance below and above the score, two doubles each
--       numbers   random 48-bit numbers, 6 bytes each, little-endian
--       barred    number of members that the client may have to pass over: some more are drawn
--       build that the client believes to be live
--       at        a score to draw around, ahead of those that have it; '' for that of the member
-- Returns {'drawn', size of the index, band used (from 1), members in it beside the asking one, number of those drawn that
--         rank before it, number of others in the band that do, and that don't, then position, member and score of each
--         drawn: first those before, each side in random order}. Positions count from 0 at the lowest score. {'not ranked'}
--         if the member is not in live; the errors of lib/built.lua.
-- Cost  O(wanted * log(size)).

local live, meta = KEYS[1], KEYS[2]
local member, wanted, reverse, bands, numbers, barred, build, at = unpack(ARGV)
local call = redis.call
wanted = tonumber(wanted)

-- The member, if there is one, stands between both sides.
local score, position, among = at, nil, 0
if at == '' then
  score, among = call('ZSCORE', live, member), 1
  if not score then
    require_live(meta, build)
    return {'not ranked'}
  end
  position = call('ZRANK', live, member)
else
  position = call('ZCOUNT', live, '-inf', reverse == '1' and at or '(' .. at)
end
local size = call('ZCARD', live)
if size == 0 then  -- the key may have gone with its build
  require_live(meta, build)
end

local band, low, high = 0, nil, nil
repeat
  band = band + 1
  low, high = ends_by_score(live, score, bands, band)
until high - low + 1 - among >= wanted or band * 16 == #bands

-- Half from each side, the odd one from before; one side makes up for what the other lacks.
local before, after = deck(low, position - 1), deck(position + among, high)
if reverse == '1' then
  before, after = after, before
end
local half = math.ceil(wanted / 2)
local function share(side, other, goal)
  local count = math.max(goal, wanted - other.left)
  return math.min(side.left, count + spare(count, barred, side.left))
end
local ahead, behind = share(before, after, half), share(after, before, wanted - half)
local reply, used, card = {'drawn', size, band, high - low + 1 - among, ahead, before.left - ahead, after.left - behind}, 0, nil
for i = 1, ahead + behind do
  local side = i <= ahead and before or after
  card, used = deal(side, numbers, used)
  local at, n = side.first + card, #reply
  local found = call('ZRANGE', live, at, at, 'WITHSCORES')
  reply[n + 1], reply[n + 2], reply[n + 3] = at, found[1], found[2]
end
return reply
