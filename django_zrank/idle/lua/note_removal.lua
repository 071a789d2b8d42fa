-- Note the time up to which a push considers members idle, before it removes them. The latest time that was noted is kept.
--
-- KEYS  meta    hash of the index
-- ARGV  moment  time, in microseconds: members that were last seen then, or before, are idle by the database's clock
-- Returns 'done'.
-- Cost  O(1).

local meta = KEYS[1]
local moment = unpack(ARGV)

local noted = redis.call('HGET', meta, 'removed')
if not noted or tonumber(moment) > tonumber(noted) then
  redis.call('HSET', meta, 'removed', moment)
end
return 'done'
