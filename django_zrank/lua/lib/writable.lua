-- uses: clock, identity, built
-- The state in which an index takes changes ahead of the database.

-- Raise an error if this server may not take them. Returns the build that is being built, if any; and the further
-- fields of the index's hash that are named. INFO takes longer than the rest of a change, so it is called at most once a
-- millisecond ('identified'): no server starts, or is promoted, within a millisecond of its last write.
local function require_writable(meta, build, ...)
  local state = redis.call('HMGET', meta, 'build', 'building', 'server', 'identified', ...)
  local live, building, trusted, identified = unpack(state, 1, 4)
  if live ~= build then
    require_live(meta, build)
  end
  local now = clock()
  if math.abs(now - (identified or 0)) > 1000 then
    local server, is_primary = identity()
    if not is_primary then
      error(redis.error_reply('READONLY the server is not a primary'))
    elseif server ~= trusted then
      error(redis.error_reply('UNHEALTHY the server is not the trusted one'))
    end
    redis.call('HSET', meta, 'identified', integer(now))
    redis.call('HSETNX', meta, 'waiting', integer(now))
  end
  -- A build of another declaration stores members differently. It gets the change from a mark.
  if building and string.match(building, '^(.-)%-') ~= string.match(live, '^(.-)%-') then
    building = nil
  end
  return building, unpack(state, 5, #state)
end
