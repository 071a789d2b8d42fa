-- Moving one side of an index: everything under a root, which is the live sorted set or the shadow.

-- A rename over a key would free it on the spot, for seconds at 20 million members.
local function rename(from, to)
  if redis.call('EXISTS', from) == 1 and redis.call('RENAMENX', from, to) == 0 then
    redis.call('UNLINK', to)
    redis.call('RENAME', from, to)
  end
end

-- Moves the sorted set of the whole index and all that belongs to it to another root, which was cleared.
local function move(from, to)
  local is_dense = redis.call('EXISTS', from .. ':values') == 1
  for _, name in ipairs(redis.call('ZRANGE', from .. ':rankings', 0, -1)) do
    local old, new = from .. ':' .. name, to .. ':' .. name
    rename(old, new)
    if is_dense then
      rename(old .. ':values', new .. ':values')
      rename(old .. ':counts', new .. ':counts')
    end
  end
  for _, suffix in ipairs({'', ':entries', ':rankings', ':values', ':counts'}) do
    rename(from .. suffix, to .. suffix)
  end
end
