-- note_read() notes the earliest time as of which rows were read since a sweep began, and the latest ever, in microseconds
-- of the database's clock.

local function note_read(meta, moment)
  local first, last = unpack(redis.call('HMGET', meta, 'first_read', 'last_read'))
  if not first or tonumber(moment) < tonumber(first) then
    redis.call('HSET', meta, 'first_read', moment)
  end
  if not last or tonumber(moment) > tonumber(last) then
    redis.call('HSET', meta, 'last_read', moment)
  end
end
