-- uses: clock, logs, slices, made, scan
-- Changes since members were read, from 'sources': sorted sets, member -> version of its newest change, each read up to a
-- cursor. These are 'recent', and logs (see lib/logs.lua).

-- The version and the member up to which a source was read.
local function set_cursor(made, i, version, member)
  made.state['version' .. i], made.state['member' .. i] = version, member
end

-- Move the cursor to the end of a source; begin the log if there is none.
local function skip_to_end(made, i)
  if i == 1 then
    return set_cursor(made, i, integer(made.applied + 1), '')
  end
  local log, newest = made.sources[i], newest_in_log(made.sources[i])
  if not newest then
    redis.call('ZADD', log, integer(made.now), '\0')
    newest = made.now
  end
  set_cursor(made, i, integer(newest + 1), '')
end

-- Return true if changes were forgotten before they were read: versions, or a log.
local function are_forgotten(made)
  if tonumber(made.state.version1) <= made.forgotten then
    return true
  end
  for i = 2, #made.sources do
    local forgotten = redis.call('ZSCORE', made.sources[i], '\0')
    if not forgotten or tonumber(made.state['version' .. i]) <= tonumber(forgotten) then
      return true
    end
  end
  return false
end

-- The number of changes that have not been read.
local function backlog(made)
  local count = 0
  for i, source in ipairs(made.sources) do
    count = count + redis.call('ZCOUNT', source, made.state['version' .. i], '+inf')
  end
  return count
end

-- Forget the oldest changes of a log: those that follow it have read them, or begin again. Returns their number.
local function shorten(log, till, most)
  local old = redis.call('ZRANGE', log, '-inf', integer(till), 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
  if #old > 2 then
    redis.call('ZREMRANGEBYRANK', log, 0, #old / 2 - 1)
    redis.call('ZADD', log, old[#old], '\0')
  end
  return #old / 2
end

-- Apply changes: of members that were written, that joined a group or left it, or whose time is over. Return true if none
-- is left; or after about twice the pieces that were left when it began, since others may change members faster than they
-- are read: the next call reads the rest.
local function follow(made)
  local state, sources, now = made.state, made.sources, made.now
  local look_ups = look_ups_of(made.checks) + cost_to_read(made) + 2 * cost_to_put(made) + 3
  state.pieces = state.patience and state.pieces + 1 or 1
  state.patience = (state.patience or 2 * math.ceil(backlog(made) * look_ups / made.work) + 50) - 1
  local all = true
  for _, group in ipairs(made.groups) do
    local most = count_of(made, look_ups, made.spent)
    local expired = forget_expired(group, integer(now), most)
    all = all and expired < most
    made.spent = made.spent + 1 + 3 * expired
  end
  for i, source in ipairs(sources) do
    local count = count_of(made, look_ups, made.spent)
    local members, version = read_on(source, state['version' .. i], state['member' .. i], count)
    if members[1] then
      put(made, members, nil, nil, true)
    end
    made.spent = made.spent + 3 + #members * look_ups
    if #members == count then
      all = false
      set_cursor(made, i, version, members[count])
    else
      skip_to_end(made, i)
      if i > 1 then
        made.spent = made.spent + 2 + 2 * shorten(source, now - 2 * made.kept * 1000000, count_of(made, 2, made.spent))
      end
    end
  end
  return all or state.patience < 0
end
