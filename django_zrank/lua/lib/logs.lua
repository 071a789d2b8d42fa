-- uses: clock
-- Logs of members that changed: sorted sets, member -> version of its newest change. intersect.lua keeps them while it
-- follows the changes; nothing else begins one. One member more, a NUL byte, has the version up to which changes are
-- forgotten.

-- The log of a group: members that joined it, left it, or are forgotten because their time is over.
local function log_of(group)
  return group .. ':changed'
end

-- The newest version; nil if no log is kept.
local function newest_in_log(log)
  return tonumber(redis.call('ZRANGE', log, 0, 0, 'REV', 'WITHSCORES')[2])
end

-- Note that members changed. False where no log is kept, or no longer, because it is too long: intersections that follow
-- it begin again. Versions only rise, also where the clock is set back.
local function note_changed(log, members)
  local LONGEST = 200000
  local newest = newest_in_log(log)
  if not newest then
    return false
  elseif redis.call('ZCARD', log) > LONGEST then
    redis.call('UNLINK', log)
    return false
  end
  local version = math.max(clock(), newest + 1)
  local noted = {}
  for i, member in ipairs(members) do
    noted[2 * i - 1], noted[2 * i] = integer(version), member
  end
  if noted[1] then
    redis.call('ZADD', log, unpack(noted))
  end
  return true
end

-- Note score changes that began in Redis; 'followed' is what meta says of it.
local function note_rescored(meta, pending, followed, members)
  if followed and not note_changed(log_of(pending), members) then
    redis.call('HDEL', meta, 'followed')
  end
end

-- Remove from a group some of those whose time is over. Returns their number.
local function forget_expired(group, now, limit)
  local expired = redis.call('ZRANGE', group, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
  if expired[1] then
    redis.call('ZREM', group, unpack(expired))
    note_changed(log_of(group), expired)
  end
  return #expired
end
