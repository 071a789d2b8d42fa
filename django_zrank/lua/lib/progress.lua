-- uses: clock, logs, keys, ties, slices, made, changes
-- Progress of an intersection, piece by piece. Its 'state' is stored from one to the next. Phases: 'scan' reads the
-- smallest test; 'written' what was written meanwhile; 'numbers' its distinct values; then it is 'kept', where it follows
-- changes from call to call, or 'made'. It is filled under another key, and takes its own, its 'key', when it is
-- complete ('in_place'). 'making' is the hash of its state, 'registry' the sorted set of all that are made; 'limit' and
-- 'seconds' are as intersect.lua takes them, 'lease' is the time at which another client may go on; lib/made.lua has
-- others of its fields.

-- Fill it in its place, or beside it.
local function fill(made, in_place)
  made.in_place, made.base = in_place, in_place and made.key or made.unfinished
  made.noted = noted_key(made.base)
end

-- Read its state, and the sources of changes.
local function resume(made, meta, recent, pending)
  local MOST_GROUPS = 100 -- each has a log, which takes a look-up a call to follow and a write for every change
  local state, fields = {}, redis.call('HGETALL', made.making)
  for i = 1, #fields, 2 do
    state[fields[i]] = fields[i + 1]
  end
  made.state, made.unfinished = state, unfinished_key(made.key)
  fill(made, state.in_place == '1')
  made.is_followed = not made.is_numbered and made.low == '-inf' and made.high == '+inf' and #made.groups <= MOST_GROUPS
  made.groups = made.is_followed and made.groups or {}
  made.sources = {recent, log_of(pending)}
  for i, group in ipairs(made.groups) do
    made.sources[i + 2] = log_of(group)
  end
  local about = redis.call('HMGET', meta, 'applied', 'started', 'floor', 'guarded')
  local is_evicted = about[4] == '1' and redis.call('EXISTS', recent) == 0
  made.applied, made.started = tonumber(about[1] or 0), about[2] or ''
  made.forgotten = is_evicted and made.applied or tonumber(about[3] or 0)
  -- It is kept for longer than it is read, so that it is there for the next call, and is unlinked by the next making: a
  -- key that expires may be freed on the spot.
  made.kept = 60
end

-- The keys that may be evicted, as '1' if one is there: what is made, and the groups.
local function are_there(made)
  local found = {redis.call('EXISTS', made.base), redis.call('EXISTS', made.noted)}
  for i, group in ipairs(made.groups) do
    found[i + 2] = redis.call('EXISTS', group)
  end
  return table.concat(found)
end

-- Return false if it has to begin again.
local function goes_on(made)
  local state = made.state
  if not state.phase or state.phase == 'made' or state.started ~= made.started or are_forgotten(made) then
    return false
  end
  local before, found = state.present or '', are_there(made)
  for i = 1, #found do
    if string.sub(before, i, i) > string.sub(found, i, i) then
      return false -- it was evicted, or is a group that all have left
    end
  end
  if not made.in_place then
    return made.now < made.lease + made.seconds * 1000000
  end
  -- With so many changes, making it again may take less.
  return state.phase ~= 'kept' or backlog(made) <= math.max(1000, state.least)
end

-- Unlink a key and those beside it.
local function unlink_made(key)
  redis.call('UNLINK', key, values_key(key), noted_key(key))
end

-- Forget intersections that are read until a time at most, some at a time.
local function forget_made(made, till, limit)
  for _, old in ipairs(redis.call('ZRANGE', made.registry, '-inf', till, 'BYSCORE', 'LIMIT', 0, limit)) do
    if old ~= made.key then
      unlink_made(old)
      unlink_made(unfinished_key(old))
    end
    redis.call('ZREM', made.registry, old)
  end
end

-- The memory that all intersections of the index take, about.
local function memory_of_made(made)
  local sum = 0
  for _, key in ipairs(redis.call('ZRANGE', made.registry, 0, made.most)) do
    for _, base in ipairs({key, unfinished_key(key)}) do
      for _, one in ipairs({base, noted_key(base), made.is_numbered and values_key(base) or nil}) do
        sum = sum + (redis.call('MEMORY', 'USAGE', one, 'SAMPLES', 1) or 0)
      end
    end
  end
  return sum
end

-- The error of one that can't be made beside so many others.
local function too_many(made, bytes)
  return redis.error_reply(string.format('TOOMANY %d %d', redis.call('ZCARD', made.registry), bytes))
end

-- The error of lack of room for one more; nil if there is room. What is older than it is promised to be goes first.
local function check_room(made)
  local bytes
  for turn = 1, 2 do
    bytes = memory_of_made(made)
    if redis.call('ZCARD', made.registry) < made.most and bytes < made.bytes then
      return nil
    elseif turn == 1 then
      forget_made(made, integer(made.now + 2 * made.seconds * 1000000), 10)
    end
  end
  return too_many(made, bytes)
end

-- Begin with the first set of the smallest test; the error TOOLARGE if that is too large, TOOMANY if too many are there.
local function begin(made, meta)
  fill(made, false)
  redis.call('UNLINK', made.making)
  unlink_made(made.unfinished)
  forget_made(made, integer(made.now), 10)
  local smallest, least = smallest_check(made.checks, made.live, made.low, made.high)
  if least > made.limit then
    return redis.error_reply(string.format('TOOLARGE %d %d', least, made.limit))
  end
  local refused = not redis.call('ZSCORE', made.registry, made.key) and check_room(made)
  if refused then
    return refused
  end
  local last = made.state
  made.state = {fresh = last.fresh, size = last.size, kept = last.kept, noted = last.noted, phase = 'scan', step = 0,
    driver = smallest, least = least, set = 1, score = '', member = '', started = made.started}
  for i = 1, #made.sources do
    skip_to_end(made, i)
  end
  redis.call('HSET', meta, 'followed', 1)
end

-- Number the distinct values of what is complete. Return true when all are numbered.
local function number_values(made)
  local state, base, width, last = made.state, made.base, made.layout.width, nil
  local count = count_of(made, 6, 0)
  local members = redis.call('ZRANGE', base, state.at, state.at + count - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    local value = value_of(tie_of(members[i], width), members[i + 1])
    if value ~= last then
      redis.call('ZADD', values_key(base), members[i + 1], value)
      last = value
    end
  end
  state.at, made.spent = state.at + count, 3 * #members
  return #members < 2 * count
end

-- Store the state, and renew the expiry of every key, whether this piece has written it or not: thousands of pieces may
-- pass until it is written again.
local function save(made)
  local state, fields = made.state, {}
  if made.in_place then
    state.kept, state.noted = redis.call('EXISTS', made.key), redis.call('EXISTS', made.noted)
  end
  state.present = are_there(made)
  for field, value in pairs(state) do
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  redis.call('HSET', made.making, unpack(fields))
  if not made.in_place then
    redis.call('ZADD', made.registry, integer(made.now + made.kept * 1000000), made.key)
  end
  local keys = {made.making, made.base, values_key(made.base), made.noted, made.registry, unpack(made.sources, 2)}
  for _, key in ipairs(keys) do
    redis.call('EXPIRE', key, made.kept)
  end
end

-- Put it in its place, unless that is where it was filled, and note until when it is fresh.
local function finish(made)
  local SECOND, key, base, state = 1000000, made.key, made.base, made.state
  if not made.in_place then
    unlink_made(key)
    local renamed = {[base] = key, [values_key(base)] = values_key(key)}
    renamed[made.noted] = made.is_followed and noted_key(key) or nil
    for from, to in pairs(renamed) do
      if redis.call('EXISTS', from) == 1 then
        redis.call('RENAME', from, to)
      end
    end
    redis.call('UNLINK', made.noted, made.making)
    fill(made, true)
  end
  local is_quick = made.is_followed and tonumber(state.pieces) < 2
  state.size = made.facet == '' and redis.call('ZCARD', key) or 0
  state.in_place, state.phase, state.step, state.lease = 1, made.is_followed and 'kept' or 'made', '', 0
  state.fresh = integer(made.now + (is_quick and 1 or made.seconds) * SECOND)
  -- That of a band is for one draw, so it makes room for others first.
  local is_whole = made.low == '-inf' and made.high == '+inf'
  local read = is_whole and 3 * made.seconds or 1
  redis.call('ZADD', made.registry, integer(made.now + read * SECOND), key)
  save(made)
end
