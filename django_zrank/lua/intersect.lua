-- uses: clock, built, keys, ties, tests
-- Materialise the ranking of the members that pass several tests, for a few seconds. One that is there already stays.
--
-- KEYS  intersection  sorted set to make, stored member -> score
--       live          sorted set of the whole index
--       meta          hash of the index
--       …             the sorted sets that 'tests' are about
-- ARGV  generation    that the client believes to be live
--       width         tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       ties          '1' where a member's tie bytes stand in the hash of memberships
--       dense         '1' where a ranking keeps its distinct values
--       tests         what a member must pass: for each test '+' or '-' (to be, or not, in one of its sets), 'r' or
--                     'g' (rankings of stored members, or groups of primary keys) and their number, as '+r2-g1'
--       limit         how many members the smallest test may have
--       seconds       for which it is kept
-- Returns how many members it has; or the error TOOLARGE with the size of the smallest test.
-- Cost  O(limit * log(limit) * sets).

local intersection, live, meta = KEYS[1], KEYS[2], KEYS[3]
local generation, width, ties, dense, tests, limit, seconds = unpack(ARGV)
local FIRST_TEST = 4
local call = redis.call
width, limit = tonumber(width), tonumber(limit)

local elsewhere = not_live(meta, generation)
if elsewhere then
  return elsewhere
end
if call('EXISTS', intersection) == 1 then
  return call('ZCARD', intersection)
end

local now = integer(clock())

-- A group has primary keys without scores. As far as it is needed, it is made a ranking.
local scratch, made = intersection .. ':scratch:', 0
local function new_scratch()
  made = made + 1
  return scratch .. made
end

local function ranking_of(group)
  local key = new_scratch()
  if ties ~= '1' then
    -- First without its scores: infinity, of those who stay for good, times no weight would be no number.
    call('ZUNIONSTORE', key, 1, group, 'WEIGHTS', 0)
    call('ZINTERSTORE', key, 2, key, live)
    return key
  end
  local members = call('ZRANGE', group, 0, -1)
  for start = 1, #members, 1000 do
    local last = math.min(start + 999, #members)
    local memberships = call('HMGET', memberships_key(live), unpack(members, start, last))
    for i = start, last do
      local membership = memberships[i - start + 1]
      local stored = (membership and string.sub(membership, 1, tie_length(membership, width)) or '') .. members[i]
      local score = call('ZSCORE', live, stored)
      if score then
        call('ZADD', key, score, stored)
      end
    end
  end
  return key
end

local checks, smallest = parse_tests(tests, KEYS, FIRST_TEST)
for _, check in ipairs(checks) do
  check.size = 0
  for _, set in ipairs(check.keys) do
    if check.is_group then
      call('ZREMRANGEBYSCORE', set, '-inf', now)
    end
    check.size = check.size + call('ZCARD', set)
  end
  if check.wants and (not smallest or check.size < smallest.size) then
    smallest = check
  end
end
smallest = smallest or {wants = true, keys = {live}, size = call('ZCARD', live)}
if smallest.size > limit then
  return redis.error_reply(string.format('TOOLARGE %d %d', smallest.size, limit))
end
for _, check in ipairs(checks) do
  for i, group in ipairs(check.is_group and check.keys or {}) do
    if check.size > limit then
      return redis.error_reply(string.format('TOOLARGE %d %d', check.size, limit))
    end
    check.keys[i] = ranking_of(group)
  end
end

-- 'unpack' fails at 8,000 sets.
local BATCH = 1000

-- Of those that stand in several sets, each has the same score.
local function unite(target, keys)
  for first = 1, #keys, BATCH do
    local args = {unpack(keys, first, math.min(first + BATCH - 1, #keys))}
    if first > 1 then
      args[#args + 1] = target
    end
    local count = #args
    args[count + 1], args[count + 2] = 'AGGREGATE', 'MAX'
    call('ZUNIONSTORE', target, count, unpack(args))
  end
end

local function take_away(target, keys)
  for first = 1, #keys, BATCH do
    local args = {target, unpack(keys, first, math.min(first + BATCH - 1, #keys))}
    call('ZDIFFSTORE', target, #args, unpack(args))
  end
end

unite(intersection, smallest.keys)
for _, check in ipairs(checks) do
  if check.wants and check ~= smallest then
    local parts = {}
    for i, set in ipairs(check.keys) do
      parts[i] = new_scratch()
      call('ZINTERSTORE', parts[i], 2, intersection, set, 'WEIGHTS', 1, 0)
    end
    unite(intersection, parts)
  elseif not check.wants then
    take_away(intersection, check.keys)
  end
end
for i = 1, made do
  call('UNLINK', scratch .. i)
end

call('EXPIRE', intersection, seconds)
if dense == '1' then
  local members, values = call('ZRANGE', intersection, 0, -1, 'WITHSCORES'), values_key(intersection)
  call('DEL', values)
  for i = 1, #members, 2 do
    local tie = string.sub(members[i], 1, tie_length(members[i], width))
    call('ZADD', values, members[i + 1], value_of(tie, members[i + 1]))
  end
  call('EXPIRE', values, seconds)
end
return call('ZCARD', intersection)
