-- Notes that show if Redis has evicted pending changes, or those of the flush in flight. The index's hash has the
-- fields 'held', the rule of the pending changes while there are any, or 'evicted' once some are known to be lost; and
-- 'carried', the number of the flush in flight, if it carries any.

-- Note that changes are about to be pending. 'held': what is noted.
local function note_held(meta, pending, rule, held)
  if not held then
    redis.call('HSET', meta, 'held', rule)
  elseif redis.call('EXISTS', pending) == 0 then
    redis.call('HSET', meta, 'held', 'evicted')
  end
end
