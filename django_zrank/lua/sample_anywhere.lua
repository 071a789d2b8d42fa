-- Draws random distinct members near one member, half of them ranked before it and half after, in any kind of ranking: of
-- facets and groups, with ties and further criteria, by scores or by ranks. sample_nearby.lua is the short way where there
-- is nothing of this.
--
-- KEYS  ranking   sorted set that is drawn from, stored member -> score
--       live      sorted set of the whole index, in which the member must stand
--       meta      hash of the index
--       seen      sorted set of members shown to this one -> until when, in microseconds; only where 'remember' is given
--       …         the sorted sets that 'tests' are about
-- ARGV  member    whose neighbours are wanted, as stored
--       wanted    how many, at least 1
--       reverse   '1' where a higher score ranks better
--       bands     one or more bands to try in turn: distance below and above the score, two doubles each; of ranks,
--                 how many below and above; where 'exact' is given, 64-bit integers, high byte first
--       excluded  primary keys never to offer (see lib/exclusions.lua); or nothing
--       numbers   random 48-bit numbers, 6 bytes each, little-endian
--       width     tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       entries   '1' where a hash holds the entries of members
--       measure   'score', 'exact' (scores that may lie beyond 2^53) or 'ranks'
--       method    'ordinal', 'competition' or 'dense'
--       tests     what else a member must pass: for each test '+' or '-' (to be, or not, in one of its sets), 'r' or
--                 'g' (rankings of stored members, or groups of primary keys) and their number, as '+r2-g1'; or nothing
--       patience  how many members that fail the tests are looked up before giving up
--       remember  microseconds for which those drawn are not drawn again, unless nobody else is left; or nothing
-- Returns {size of ranking, position of the asking one, band used (from 1), members in it beside that one, then position,
--         stored member, score of each drawn, and at last, unless the method is ordinal, {what stands before the rank
--         of each}}. Positions count from 0 at the lowest score. Nil where the member is not in live; 0 where patience
--         ended; the error NOTBUILT where the index was never built.
-- Cost  O(wanted * log(size)) and O(bytes of excluded). Where more than about half of a side is excluded, that
--       side is read whole: no more than twice as many members as are excluded.

local ranking, live, meta, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, wanted, reverse, bands, excluded, numbers, width, entries, measure, method, tests, patience,
  remember = unpack(ARGV)
local FIRST_TEST = 5
local call = redis.call
wanted, patience, remember = tonumber(wanted), tonumber(patience), tonumber(remember)
local layout = {width = tonumber(width), entries = entries == '1', reverse = reverse == '1', method = method}
if tests == '' then
  tests = nil
end

local me, score = find(live, member, layout)
if not score then
  return not_built(meta) or false
end
local now
if remember or tests then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local function primary_key(stored)
  if layout.width > 0 or layout.entries then
    return string.sub(stored, tie_length(stored, layout.width) + 1)
  end
  return stored
end

local is_excluded, shown = exclusions(excluded), {}
if remember then
  call('ZREMRANGEBYSCORE', seen, '-inf', string.format('%.0f', now))
  for _, who in ipairs(call('ZRANGE', seen, 0, -1)) do
    shown[who] = true
  end
end
local function is_barred(stored)
  local who = primary_key(stored)
  return shown[who] or is_excluded(who)
end

-- The smallest ranking that holds all of those who pass the tests, and a function that tells of a member whether it does.
local function testing()
  local checks, smallest, least = parse_tests(tests, KEYS, FIRST_TEST), ranking, call('ZCARD', ranking)
  for _, check in ipairs(checks) do
    if check.wants and not check.is_group and #check.keys == 1 then
      local size = call('ZCARD', check.keys[1])
      if size < least then
        smallest, least = check.keys[1], size
      end
    end
  end
  return smallest, function(stored)
    for _, check in ipairs(checks) do
      local found = false
      for _, set in ipairs(check.keys) do
        local value = call('ZSCORE', set, check.is_group and primary_key(stored) or stored)
        if value and not (check.is_group and tonumber(value) <= now) then
          found = true
          break
        end
      end
      if found ~= check.wants then
        return false
      end
    end
    return true
  end
end

local passes
if tests then
  ranking, passes = testing()
end

local size = call('ZCARD', ranking)
local position, among = call('ZRANK', ranking, me), 1
-- In a narrowed ranking the asking one may still stand where it stood some seconds ago.
if not position or (ranking ~= live and call('ZSCORE', ranking, me) ~= score) then
  position, among = count_lower(ranking, score, me, false), 0
end

-- The first and the last position of a band. Scores of 64 bits are reckoned with in two halves, 2^63 added, and
-- compared by their bytes where they tie.
local function ends(band)
  if measure == 'ranks' then
    local below, above = struct.unpack('<dd', bands, band * 16 - 15)
    return math.max(0, position - below), math.min(size, position + among + above) - 1
  elseif measure ~= 'exact' then
    return ends_by_score(ranking, score, bands, band)
  end
  local high, low
  if layout.width > 0 then
    high, low = struct.unpack('>I4I4', me)
  elseif tie_length(me, 0) > 0 then
    high, low = struct.unpack('>I4I4', me, 2)
  else
    high, low = math.floor(score / 2 ^ 32) + 2 ^ 31, score % 2 ^ 32
  end
  local function count(h, l, past)
    if l < 0 then
      h, l = h - 1, l + 2 ^ 32
    elseif l >= 2 ^ 32 then
      h, l = h + 1, l - 2 ^ 32
    end
    if h < 0 then
      h, l = 0, 0
    elseif h >= 2 ^ 32 then
      h, l = 2 ^ 32 - 1, 2 ^ 32 - 1
    end
    local bound, bytes = (h - 2 ^ 31) * 2 ^ 32 + l, struct.pack('>I4I4', h, l)
    if layout.width == 0 then
      bytes = math.abs(bound) < 2 ^ 53 and '' or '\0' .. bytes
    end
    return count_lower(ranking, string.format('%.17g', bound), bytes, past)
  end
  local below, below_low, above, above_low = struct.unpack('>I4I4I4I4', bands, band * 16 - 15)
  return count(high - below, low - below_low, false), count(high + above, low + above_low, true) - 1
end

local draw = {ranking = ranking, numbers = numbers, wanted = wanted, is_barred = is_barred}
draw.passes, draw.failed, draw.patience = passes, 0, patience
local band, low, high = 0
repeat
  band = band + 1
  low, high = ends(band)
  local before, after = deck(low, position - 1), deck(position + among, high)
  if layout.reverse then
    before, after = after, before
  end
  choose(draw, before, after, {size, position, band, high - low + 1 - among})
  if draw.failed > patience then
    return 0
  end
until draw.chosen == wanted or band * 16 == #bands

local reply = draw.reply
if remember then
  -- Nobody new is left: those shown longest ago.
  for _, who in ipairs(draw.chosen < wanted and call('ZRANGE', seen, 0, -1) or {}) do
    if draw.chosen < wanted and who ~= member and not is_excluded(who) then
      local stored, value = find(live, who, layout)
      local at = value and call('ZRANK', ranking, stored)
      if at and at >= low and at <= high and (not tests or passes(stored)) then
        local n = #reply
        reply[n + 1], reply[n + 2], reply[n + 3] = at, stored, value
        draw.chosen = draw.chosen + 1
      end
    end
  end
  local SEEN = 10000
  for i = 6, #reply, 3 do
    call('ZADD', seen, string.format('%.0f', now + remember), primary_key(reply[i]))
  end
  call('ZREMRANGEBYRANK', seen, 0, -1 - SEEN)
  local longest = call('ZRANGE', seen, -1, -1, 'WITHSCORES')[2]
  if longest then
    call('PEXPIREAT', seen, string.format('%.0f', longest / 1000))
  end
end
if method ~= 'ordinal' then
  local before = {}
  for i = 5, #reply, 3 do
    local place = layout.reverse and size - 1 - reply[i] or reply[i]
    before[#before + 1] = count_before(ranking, reply[i + 1], reply[i + 2], place, layout)
  end
  reply[#reply + 1] = before
end
return reply
