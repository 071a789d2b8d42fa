-- The build that a client reads.

-- Raise the error NOTBUILT if an index was never built, SWAPPED with the name of the live generation if that is another one.
local function require_live(meta, generation)
  local live = redis.call('HGET', meta, 'generation')
  if live ~= generation then
    error(redis.error_reply(live and 'SWAPPED ' .. live or 'NOTBUILT the index is not built'))
  end
end
