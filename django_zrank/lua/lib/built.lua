-- Whether there is anything to read.

-- The error NOTBUILT where an index was never built; else nothing.
local function not_built(meta)
  if redis.call('HEXISTS', meta, 'generation') == 0 then
    return redis.error_reply('NOTBUILT the index is not built')
  end
end
