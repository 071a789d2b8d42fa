-- Clearing one side of an index: everything under a root, which is the live sorted set or the shadow.

-- Deletes the sorted set of the whole index and all that belongs to it, of whatever layout it is, or was.
local function clear(root)
  for _, name in ipairs(redis.call('ZRANGE', root .. ':rankings', 0, -1)) do
    local key = root .. ':' .. name
    redis.call('UNLINK', key, key .. ':values', key .. ':counts')
  end
  redis.call('UNLINK', root, root .. ':entries', root .. ':rankings', root .. ':values', root .. ':counts')
end
