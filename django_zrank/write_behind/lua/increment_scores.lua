-- uses: keys, ruled, held, sums, permissions
-- Add to scores of members that are in one ranking only, all or none, in a fraction of the time of change_scores.lua.
--
-- KEYS  live        root of the live build: sorted set of all members
--       meta        hash of the index
--       pending     hash, member -> its pending change
-- ARGV  build       that the client believes to be live
--       rule        by which scores change, a sum, with its column and unit: sum:points:0
--       lowest      score that a change may lead to
--       highest     score that a change may lead to
--       member      primary key as text
--       change      in units
--       …           then more pairs of both; 150 in all at most, each member once
-- Returns {'done', score…}; {'missing', member…} or {'beyond', member…} with nothing changed; and errors, all as in
--         change_scores.lua.
-- Cost  O(members * log(size)).

local live, meta, pending = KEYS[1], KEYS[2], KEYS[3]
local build, rule, lowest, highest, member, change = unpack(ARGV, 1, 6)
local FIRST, EXACT, is_one = 5, 2 ^ 53, #ARGV == 6
lowest, highest = tonumber(lowest), tonumber(highest)

-- Add to the score of the first member. 'note' is called before the change is pending. Returns the new score; nil, with
-- nothing changed, if that is not allowed.
local function add(note)
  local by = tonumber(change)
  -- A sum that may lie beyond 2^53 is rounded, and could not be taken back.
  if math.abs(by) > EXACT - math.max(highest, -lowest) then
    local before = tonumber(redis.call('ZSCORE', live, member))
    if before and (by > 0 and by > highest - before or by < 0 and by < lowest - before) then
      return nil
    end
  end
  local score = redis.call('ZADD', live, 'XX', 'INCR', change, member)
  if not score then
    return nil
  end
  local after = tonumber(score)
  if after > highest and by > 0 or after < lowest and by < 0 then
    redis.call('ZADD', live, 'XX', 'INCR', -by, member)
    return nil
  end
  if note then
    note()
  end
  local sum = redis.pcall('HINCRBY', pending, member, change)
  if type(sum) == 'table' then -- the account may not use it
    redis.call('ZADD', live, 'XX', 'INCR', -by, member)
    error(sum)
  end
  return after
end

-- Most calls are about one member, while nothing is being built, others have pending changes and the server was checked
-- a moment ago (see lib/ruled.lua). They end before the libraries are defined, which would take a fifth of the time.
if is_one then
  local state, time = redis.call('HMGET', meta, 'build', 'building', 'identified', 'rule'),
    redis.call('TIME')
  local ago = time[1] * 1000000 + time[2] - (state[3] or 0)
  if state[1] == build and not state[2] and state[4] == rule and ago <= 1000 and ago >= -1000
    and redis.call('EXISTS', pending) == 1 then
    local score = add()
    if score then
      return {'done', score}
    end
  end
end

-- Libraries come here.

local building, held = require_rule(meta, build, rule)
require_commands(meta)
local function note()
  note_held(meta, pending, rule, held)
end

local score = is_one and add(note)
if score then
  if building then
    redis.call('ZADD', root_of(building, live, build), 'XX', 'INCR', change, member)
  end
  return {'done', score}
end

local members, changes = {}, {}
for i = FIRST, #ARGV, 2 do
  members[#members + 1], changes[#changes + 1] = ARGV[i], tonumber(ARGV[i + 1])
end
local absent, missing, beyond, done, entering = {}, {'missing'}, {'beyond'}, {'done'}, {}
for n, before in ipairs(redis.call('ZMSCORE', live, unpack(members))) do
  if before then
    local by = changes[n]
    if by > 0 and by > highest - before or by < 0 and by < lowest - before then
      beyond[#beyond + 1] = members[n]
    end
    done[n + 1] = before + by
    entering[2 * n - 1], entering[2 * n] = before + by, members[n]
  else
    absent[#absent + 1], done[n + 1] = members[n], 0
  end
end
if absent[1] then
  -- A member with a membership has a score beyond 2^53, which tie bytes make exact.
  for n, membership in ipairs(redis.call('HMGET', memberships_key(live), unpack(absent))) do
    local list = membership and beyond or missing
    list[#list + 1] = absent[n]
  end
end
if #missing > 1 then
  return missing
elseif #beyond > 1 then
  return beyond
end
note()
redis.call('ZADD', live, unpack(entering))
add_pending(pending, members, changes)
if building then
  local root = root_of(building, live, build)
  local shadowed = {}
  for n, before in ipairs(redis.call('ZMSCORE', root, unpack(members))) do
    if before then
      shadowed[#shadowed + 1], shadowed[#shadowed + 2] = before + changes[n], members[n]
    end
  end
  if shadowed[1] then
    redis.call('ZADD', root, unpack(shadowed))
  end
end
return done
