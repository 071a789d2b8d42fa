-- The build that a client reads.

-- Raise the error NOTBUILT if an index was never built, SWAPPED with the name of the live build if that is another one.
local function require_live(meta, build)
  local live = redis.call('HGET', meta, 'build')
  if live ~= build then
    error(redis.error_reply(live and 'SWAPPED ' .. live or 'NOTBUILT the index is not built'))
  end
end
