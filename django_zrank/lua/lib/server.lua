-- Whether the server, and what it holds of an index, is still what it was; and its clock.

-- The run_id of the server that answers: another after each start, and another on each replica.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- Whether a field of the index's hash ('generation', 'building') has a value, on the server that was written to.
local function holds(meta, field, value)
  return redis.call('HGET', meta, field) == value and redis.call('HGET', meta, 'run') == run_id()
end

-- The time in microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Whether a rebuild whose last sign of life was 'seen' counts as dead: after 'lease' seconds.
local function is_silent(seen, lease)
  return clock() - seen > lease * 1000000
end

-- A place above 'last', the newest one: the time, unless the clock was set back.
local function next_place(last)
  return string.format('%.0f', math.max(clock(), last + 1))
end
