-- uses: clock, ruled, bulk, keys, beside, memberships, pending, held, sums, ties, permissions
-- Change scores ahead of their column, in every ranking of the members: all of them, or none.
--
-- KEYS  live        root of the live build: sorted set of all members, and of the names of all that belongs to it
--       meta        hash of the index
--       pending     hash, member -> its pending change
--       once        text that remembers for a while which call was made under this name
-- ARGV  build       that the client believes to be live
--       memberships '1' if members have memberships
--       rule        by which scores change, with its column and unit: sum:points:0; or max, min, last
--       lowest      score that a change may lead to
--       highest     score that a change may lead to
--       keep        seconds for which the call is remembered; '' not to
--       …           then pairs: member, change in units; 150 at most, each member once
-- Returns {'done', score…}; with nothing changed {'replayed', score…} if this call was made before, {'missing', member…} if
--         some aren't ranked, {'beyond', member…} if scores would leave the column's range, or {'reused'} if another call
--         was made under this name. The error UNHEALTHY if the server is not the trusted one, UNAVAILABLE if
--         changes by another rule are not flushed yet, READONLY on a replica, SWAPPED, NOTBUILT.
-- Cost  O(members * (1 + rankings of a member) * log(size)).

local live, meta, pending, once = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local build, memberships, rule, lowest, highest, keep = unpack(ARGV, 1, 6)
local FIRST = 7
memberships, lowest, highest = memberships == '1', tonumber(lowest), tonumber(highest)

local building, held = require_rule(meta, build, rule)
local operation = operation_of(rule)
local is_best = operation == 'max' or operation == 'min'

local members, changes, stored, known, waiting = {}, {}, {}, {}, {}
for i = FIRST, #ARGV, 2 do
  members[#members + 1], changes[#changes + 1] = ARGV[i], ARGV[i + 1]
end

-- The digest of the changes of this call, independent of their order.
local function digest()
  local pairs_of = {}
  for n, member in ipairs(members) do
    pairs_of[n] = member .. '\0' .. changes[n]
  end
  table.sort(pairs_of)
  return redis.sha1hex(table.concat(pairs_of, '\0'))
end

if memberships then
  known = redis.call('HMGET', memberships_key(live), unpack(members))
end
for n, member in ipairs(members) do
  known[n] = known[n] or ''
  stored[n] = tie_of(known[n], 0) .. member
end
local scores = redis.call('ZMSCORE', live, unpack(stored))
-- A pending change may be better than the live score: a build of another declaration gets it from the flush.
if is_best then
  waiting = redis.call('HMGET', pending, unpack(members))
end
local missing, beyond, done = {'missing'}, {'beyond'}, {'done'}
for n, member in ipairs(members) do
  if not scores[n] then
    missing[#missing + 1] = member
  else
    local before = tonumber(scores[n])
    if waiting[n] then
      before = changed(operation, before, tonumber(waiting[n]))
      scores[n] = before
    end
    local by = tonumber(changes[n])
    local after = changed(operation, before, by)
    local too_high, too_low = after > highest and after > before, after < lowest and after < before
    if too_high or too_low or stored[n] ~= member then
      beyond[#beyond + 1] = member
    end
    done[#done + 1] = integer(after)
  end
end
if #missing > 1 then
  return missing
end
-- A call that was made before is not refused: its own change may have reached the end of the range.
local call = keep ~= '' and digest()
local made = call and redis.call('GET', once)
if made and made ~= call then
  return {'reused'}
elseif made then
  done[1] = 'replayed'
  for n = 1, #members do
    done[n + 1] = integer(tonumber(scores[n]))
  end
  return done
elseif #beyond > 1 then
  return beyond
end
require_commands(meta, 'EXISTS', 'HINCRBY', 'HSET', 'ZADD', 'ZCARD')
if keys_beside(live)[1] then
  require_commands(meta, 'HDEL', 'ZREM')
end
if call then
  require_commands(meta, 'SET')
  redis.call('SET', once, call, 'EX', keep)
end

-- The changes that become pending: of best scores, only those that are better.
local gaining, gains, entering = {}, {}, {}
for n, member in ipairs(members) do
  local score = done[n + 1]
  if not is_best or tonumber(scores[n]) ~= tonumber(score) then
    gaining[#gaining + 1], gains[#gains + 1] = member, changes[n]
  end
  for name in rankings_of(names_of(known[n], 0)) do
    local list = list_of(entering, name)
    list[#list + 1], list[#list + 2] = score, member
  end
end
if gaining[1] then
  note_held(meta, pending, rule, held)
end
if operation == 'sum' then
  add_pending(pending, gaining, gains)
end
if change_rankings(live, {}, entering, 0) then
  redis.call('HSET', meta, 'behind', 'rebuild') -- a ranking was evicted
end
if operation ~= 'sum' and gaining[1] then
  local new = {}
  for n, member in ipairs(gaining) do
    new[2 * n - 1], new[2 * n] = member, gains[n]
  end
  write_all('HSET', pending, new)
end
-- A build gets no other changes. The live score may be better only because it is outdated, and the build may have a newer
-- row, whose marks are deleted with those that the rebuild has listed.
if building and gaining[1] then
  local shadow = root_of(building, live, build)
  known = memberships and redis.call('HMGET', memberships_key(shadow), unpack(gaining)) or {}
  change_rankings(shadow, {}, changed_everywhere(shadow, gaining, known, operation, gains), 0)
end
return done
