-- uses: clock, built, keys, ties, tests, positions, slices
-- Materialise the ranking of the members that pass several tests, or their numbers by a facet, for a few seconds: one
-- piece of it a call. It is filled under another name, and takes its own when it is complete.
--
-- KEYS  intersection   what is made: sorted set, stored member -> score; or hash, name of a value's ranking -> members
--       making         hash: how far it is
--       intersections  sorted set: what was made -> until when it is read
--       live           sorted set of the whole index
--       recent         sorted set, member -> version of its newest write
--       meta           hash of the index
--       …              the sorted sets that 'tests' are about
-- ARGV  generation     that the client believes to be live
--       width          tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships    '1' where a hash holds the memberships of members
--       dense          '1' where a ranking keeps its distinct values
--       tests          what a member must pass: for each test '+' or '-' (to be, or not, in one of its sets), 'r' or
--                      'g' (rankings of stored members, or groups of primary keys) and their number, as '+r2-g1'
--       facet          name of a facet and a colon, to count members by its values; or nothing
--       low            the lowest score that belongs to it, or '-inf'
--       high           the highest one, or '+inf'
--       limit          how many members the smallest test may have
--       seconds        for which it is read
--       work           look-ups of a piece at most
--       step           the one that the last piece answered; nothing for the first
-- Returns {'made', number of members}; {'going', step} where more is to be made; {'wait'} where another client makes
--         it; the error TOOLARGE with the size of the smallest test; the errors of lib/built.lua.
-- Cost  O(work * log(size)).

local intersection, making, intersections, live, recent, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local generation, width, memberships, dense, tests, facet, low, high, limit, seconds, work, step = unpack(ARGV)
local FIRST_TEST = 7
local call = redis.call
local layout = {width = tonumber(width), memberships = memberships == '1'}

local elsewhere = not_live(meta, generation)
if elsewhere then
  return elsewhere
end
local SECOND = 1000000
local now, state = clock(), {}
local fields = call('HGETALL', making)
for i = 1, #fields, 2 do
  state[fields[i]] = fields[i + 1]
end
local fresh = tonumber(state.fresh or 0)
local is_there = state.kept == '0' or (state.kept and call('EXISTS', intersection) == 1)
if is_there and now < fresh then
  return {'made', tonumber(state.size)}
end
local lease = tonumber(state.lease or 0)
if step ~= (state.step or '') and now < lease then
  -- Until it is made anew, the one before will do.
  return is_there and now < fresh + seconds * SECOND and {'made', tonumber(state.size)} or {'wait'}
end

-- It is kept for longer than it is read, so that it is there for the next call, and is unlinked by the next making: a
-- key that expires may be freed on the spot.
local KEPT = 60
-- Seconds without a next piece after which another client goes on.
local LEASE = 0.25
local part = intersection .. ':part'
local stored_as, counts = part .. ':stored', part .. ':counts'
local checks = parse_tests(tests, KEYS, FIRST_TEST)

local function size_of(check)
  local size = 0
  for _, set in ipairs(check.keys) do
    size = size + (check.is_group and call('ZCARD', set) or call('ZCOUNT', set, low, high))
  end
  return size
end

-- Begin with the first set of the smallest test; return the size of that.
local function begin()
  call('UNLINK', part, values_key(part), stored_as, counts)
  for _, old in ipairs(call('ZRANGEBYSCORE', intersections, '-inf', integer(now), 'LIMIT', 0, 10)) do
    call('UNLINK', old, values_key(old))
    call('ZREM', intersections, old)
  end
  local driver, least = 0, nil
  for i, check in ipairs(checks) do
    for _, set in ipairs(check.is_group and check.keys or {}) do
      local expired = call('ZCOUNT', set, '-inf', integer(now))
      if expired > 0 then
        call('ZREMRANGEBYRANK', set, 0, math.min(expired, 500) - 1)
      end
    end
    local size = check.wants and size_of(check)
    if size and (not least or size < least) then
      driver, least = i, size
    end
  end
  local applied, started = unpack(call('HMGET', meta, 'applied', 'started'))
  state = {fresh = state.fresh, size = state.size, kept = state.kept, phase = 'scan', step = 0, driver = driver, set = 1,
    score = '', member = '', started = started or '', version = integer((applied or 0) + 1), written = ''}
  return least or size_of({keys = {live}})
end

-- The next members of a set, and their scores. Positions move while it is read in pieces; scores and members do not.
local function read(set, score, member, count)
  local rank, members, scores = member ~= '' and call('ZRANK', set, member), {}, {}
  if rank and call('ZSCORE', set, member) == score then
    rank = rank + 1
  else
    rank = count_lower(set, score, member, false)
  end
  local found = call('ZRANGE', set, rank, rank + count - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    members[#members + 1], scores[#scores + 1] = found[i], found[i + 1]
  end
  return members, scores
end

-- Add to the part the members that pass all tests but 'skipped'.
local function put_in(stored, scores, skipped)
  local passed, tied, forms = {}, {}, {}
  for _, i in ipairs(passing(checks, stored, layout, live, now, skipped)) do
    local score = tonumber(scores[i])
    if score >= tonumber(low) and score <= tonumber(high) then
      passed[#passed + 1] = scores[i]
      passed[#passed + 1] = stored[i]
      local member = primary_key(stored[i], layout)
      if member ~= stored[i] then
        tied[#tied + 1] = member
        forms[#forms + 1] = member
        forms[#forms + 1] = stored[i]
      end
    end
  end
  if tied[1] then
    for n, old in ipairs(call('HMGET', stored_as, unpack(tied))) do
      if old and old ~= forms[2 * n] then
        call('ZREM', part, old)
      end
    end
    call('HSET', stored_as, unpack(forms))
  end
  if passed[1] then
    call('ZADD', part, unpack(passed))
  end
end

-- The number of members of a piece, of which so many look-ups are spent.
local function count_of(look_ups, spent)
  look_ups = look_ups + (layout.width > 0 and 3 or 0)
  return math.max(1, math.min(1000, math.floor((work - (spent or 0)) / look_ups)))
end

-- Put in the next members of one set; return the look-ups that it took.
local function scan_set(driver, skipped, spent)
  local from = driver.is_group and integer(now) or low
  local look_ups = look_ups_of(checks, skipped) + (driver.is_group and 6 or 3)
  local count = count_of(look_ups, spent)
  local set = driver.keys[tonumber(state.set)]
  local members, scores = read(set, state.score == '' and from or state.score, state.member, count)
  local is_over, read_of = #members < count or (not driver.is_group and tonumber(scores[#scores]) > tonumber(high)), #members
  state.score, state.member = scores[#scores], members[#members]
  if driver.is_group then
    members, scores = locate(live, members, layout)
  end
  if members[1] then
    put_in(members, scores, skipped)
  end
  if is_over then
    state.set, state.score, state.member = state.set + 1, '', ''
    state.phase = driver.keys[state.set] and 'scan' or 'written'
  end
  return 3 + read_of * (look_ups + (layout.width > 0 and 3 or 0))
end

-- A piece of the sets of the smallest test: of thousands of small ones, many.
local function scan()
  local skipped, spent = checks[tonumber(state.driver)], 0
  local driver = skipped or {keys = {live}}
  repeat
    spent = spent + scan_set(driver, skipped, spent)
  until state.phase ~= 'scan' or spent >= tonumber(work)
end

-- Members that were written meanwhile may have moved to where the scan had been already.
local function follow()
  local count = count_of(look_ups_of(checks) + 8)
  local members, versions = read(recent, state.version, state.written, count)
  if members[1] then
    local gone = call('HMGET', stored_as, unpack(members))
    for i, member in ipairs(members) do
      gone[i] = gone[i] or member
    end
    call('ZREM', part, unpack(gone))
    if layout.width == 0 then
      call('ZREM', part, unpack(members)) -- one that has lost its tie bytes may be there in both forms
    end
    call('HDEL', stored_as, unpack(members))
    put_in(locate(live, members, layout))
    state.version, state.written = versions[#versions], members[#members]
  end
  if #members < count then
    state.phase, state.at = 'numbers', 0
  end
end

-- From here on the part stays as it is: its distinct values, or its members by the values of the facet.
local function number()
  local count = count_of(6) -- a membership is as much as four scores
  local members = call('ZRANGE', part, state.at, state.at + count - 1, 'WITHSCORES')
  if facet ~= '' then
    for name, members_of in pairs(count_values(live, members, facet, layout)) do
      call('HINCRBY', counts, name, members_of)
    end
  else
    local last
    for i = 1, #members, 2 do
      local value = value_of(string.sub(members[i], 1, tie_length(members[i], layout.width)), members[i + 1])
      if value ~= last then
        call('ZADD', values_key(part), members[i + 1], value)
        last = value
      end
    end
  end
  state.at = state.at + count
  return #members < 2 * count
end

local function finish()
  local size = call('ZCARD', part)
  local made = facet == '' and part or counts
  call('UNLINK', intersection, values_key(intersection), stored_as)
  local kept = call('EXISTS', made)
  if kept == 1 then
    call('RENAME', made, intersection)
    call('EXPIRE', intersection, KEPT)
  end
  if call('EXISTS', values_key(part)) == 1 then
    call('RENAME', values_key(part), values_key(intersection))
    call('EXPIRE', values_key(intersection), KEPT)
  end
  call('UNLINK', part, making)
  call('HSET', making, 'size', size, 'kept', kept, 'fresh', integer(now + seconds * SECOND))
  call('EXPIRE', making, KEPT)
  call('ZADD', intersections, integer(now + 3 * seconds * SECOND), intersection)
  return {'made', size}
end

local versions = call('HMGET', meta, 'started', 'floor')
local goes_on = state.phase and now < lease + seconds * SECOND and state.started == (versions[1] or '')
  and tonumber(state.version) > tonumber(versions[2] or 0)
if not goes_on then
  local least = begin()
  if least > tonumber(limit) then
    return redis.error_reply(string.format('TOOLARGE %d %d', least, limit))
  end
end
local phase = state.phase
if phase == 'scan' then
  scan()
elseif phase == 'written' then
  follow()
elseif number() then
  return finish()
end
if state.phase == 'numbers' and state.at == 0 and facet == '' and dense ~= '1' then
  return finish()
end
state.step, state.lease = state.step + 1, integer(now + LEASE * SECOND)
fields = {}
for field, value in pairs(state) do
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end
call('HSET', making, unpack(fields))
-- Every key, whether this piece has written it or not: thousands of pieces may pass until it is written again.
for _, key in ipairs({making, part, values_key(part), stored_as, counts}) do
  call('EXPIRE', key, KEPT)
end
return {'going', state.step}
