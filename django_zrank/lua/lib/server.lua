-- uses: clock, keys, identity
-- The server that answers, its history, and whether an index on it is still what it was.

-- True if a field of the index's hash ('build', 'building') has a value, on the server that was trusted.
local function holds(meta, field, value)
  local state = redis.call('HMGET', meta, field, 'server')
  return state[1] == value and state[2] == identity()
end

-- True if a rebuild whose last 'heartbeat' counts as dead, after 'lease' seconds. One from the future came from a
-- clock that has been set back since, so it doesn't count.
local function is_silent(heartbeat, lease)
  return math.abs(clock() - (heartbeat or 0)) > lease * 1000000
end

-- The version after the newest one. Versions only count, independent of any clock.
local function next_version(applied)
  return integer((applied or 0) + 1)
end

-- The keys that exist under a root, as '111' for members, memberships and the names of facet rankings.
local function present(root)
  return redis.call('EXISTS', root) .. redis.call('EXISTS', memberships_key(root))
    .. redis.call('EXISTS', names_key(root))
end

-- True if a key was evicted: it existed after the last write, and is gone.
local function is_evicted(root, noted)
  local found = present(root)
  for i = 1, #(noted or '') do
    if string.sub(noted, i, i) > string.sub(found, i, i) then
      return true
    end
  end
  return false
end
