-- The build that a client reads.

-- The error NOTBUILT if an index was never built, SWAPPED with the name of the live generation if that is another one;
-- else nothing.
local function not_live(meta, generation)
  local live = redis.call('HGET', meta, 'generation')
  if not live then
    return redis.error_reply('NOTBUILT the index is not built')
  elseif live ~= generation then
    return redis.error_reply('SWAPPED ' .. live)
  end
end
