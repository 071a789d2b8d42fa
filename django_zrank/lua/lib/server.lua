-- uses: clock, keys
-- The server that answers, its history, and whether an index on it is still what it was.

-- The identity of the server: its process and its replication history, 'run_id/master_replid'. A restart changes the
-- one; a promotion and a full resync change the other. And whether it is a replica; and whether its history has no
-- predecessor, as after the first replica of a primary attached.
local function identity()
  local info = redis.call('INFO', 'server', 'replication')
  local run, history = string.match(info, 'run_id:(%x+)'), string.match(info, 'master_replid:(%x+)')
  return run .. '/' .. history, string.find(info, 'role:slave', 1, true) ~= nil,
    string.find(info, 'master_replid2:0+\r') ~= nil
end

-- True if a field of the index's hash ('generation', 'building') has a value, on the server that was accepted.
local function holds(meta, field, value)
  local state = redis.call('HMGET', meta, field, 'server')
  return state[1] == value and state[2] == identity()
end

-- True if a rebuild whose last sign of life was 'seen' counts as dead: after 'lease' seconds. One from the future was
-- given by a clock that has been set back since, so it says nothing.
local function is_silent(seen, lease)
  return math.abs(clock() - (seen or 0)) > lease * 1000000
end

-- The version after the newest one: versions only count, so that no clock can lead them astray.
local function next_version(applied)
  return integer((applied or 0) + 1)
end

-- The keys that there are under a root: '111' for members, memberships and the names of facet rankings.
local function present(root)
  return redis.call('EXISTS', root) .. redis.call('EXISTS', memberships_key(root))
    .. redis.call('EXISTS', names_key(root))
end

-- True if a key is gone that was there after the last write: it was evicted.
local function is_evicted(root, noted)
  local found = present(root)
  for i = 1, #(noted or '') do
    if string.sub(noted, i, i) > string.sub(found, i, i) then
      return true
    end
  end
  return false
end
