-- Whether the server, and what it holds of an index, is still what it was.

-- The run_id of the server that answers: another after each start, and another on each replica.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- Whether a field of the index's hash ('generation', 'building') has a value, on the server that was written to.
local function holds(meta, field, value)
  return redis.call('HGET', meta, field) == value and redis.call('HGET', meta, 'run') == run_id()
end
