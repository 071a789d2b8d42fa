-- Notes by which it shows that Redis has evicted pending changes, or those of the flush in flight. The index's hash has the
-- fields 'held', the rule of the pending changes while there are any, or 'evicted' once some are known to be lost; 'least',
-- a number of members that have some at least; and 'carried', the number of the flush in flight, if it carries any.

-- Note that there are pending changes from now on. 'size': the number of members that had some before. 'held' and 'least':
-- what is noted; 'least' is raised if it is given.
local function note_held(meta, rule, size, held, least)
  if not held then
    redis.call('HSET', meta, 'held', rule, 'least', 1)
  elseif size < tonumber(least or 1) then
    redis.call('HSET', meta, 'held', 'evicted')
  elseif least and size > tonumber(least) then
    redis.call('HSET', meta, 'least', size)
  end
end
