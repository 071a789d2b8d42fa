-- uses: clock, server, identity, pending, permissions
-- Begin a flush: take pending changes, or those of the flush that is not settled yet. If nothing is pending, the declared
-- rule takes effect.
--
-- KEYS  meta     hash of the index
--       pending  hash, member -> its pending change
-- ARGV  term     under which the database knows this server
--       flushed  the last flush that the database noted
--       had      the same if it was noted under this term, so that the server must have taken it; otherwise 0
--       limit    about how many members to take
--       few      number of flushes whose contents are kept
--       many     the same while a rebuild runs, whose query may be older than all of them
--       lease    seconds after which a silent rebuild counts as dead
--       rule     by which scores change from now on
-- Returns {'taken', number of the flush, version of its taking, the rule of its changes, member, change…}; {'empty'} if
--         nothing is pending; {'building'} if a rebuild has to end first; {'superseded'} if the server or the term is
--         another; {'lacking'} if the server was rolled back and lacks a flush.
-- Cost  O(limit).

local meta, pending = KEYS[1], KEYS[2]
local term, flushed, had, limit, few, many, lease, rule = unpack(ARGV, 1, 8)
flushed, limit, few, many = tonumber(flushed), tonumber(limit), tonumber(few), tonumber(many)

local state = redis.call('HMGET', meta, 'server', 'term', 'taken', 'settled', 'kept', 'took', 'applied', 'building', 'heartbeat',
  'cursor', 'rule', 'held', 'carried')
if state[2] ~= term or state[1] ~= identity() then
  return {'superseded'}
end
if tonumber(state[3] or 0) < tonumber(had) then
  return {'lacking'}
end
require_commands(meta)
local taken, held = tonumber(state[3] or flushed), state[12]
local settled = tonumber(state[4] or taken)

-- The reply with the contents of a flush; 'found' if they have just been read.
local function contents(number, version, found)
  local reply = {'taken', integer(number), version, state[11] or rule}
  for i, text in ipairs(found or redis.call('HGETALL', carried_key(pending, number))) do
    reply[i + 4] = text
  end
  return reply
end

if settled < taken then
  if flushed < taken then
    if state[13] == integer(taken) and redis.call('EXISTS', carried_key(pending, taken)) == 0 then
      redis.call('HSET', meta, 'held', 'evicted')
    end
    return contents(taken, state[6])
  end
  redis.call('HSET', meta, 'settled', integer(taken))
end
local number, kept = math.max(taken, flushed) + 1, tonumber(state[5] or taken + 1)
local is_building = state[8] and not is_silent(state[9], lease)
if redis.call('EXISTS', pending) == 0 then
  redis.call('HDEL', meta, 'waiting')
  if state[11] and state[11] ~= rule and not is_building then
    -- Older rows lack changes by another rule, so they are read again.
    for old = kept, taken do
      redis.call('UNLINK', carried_key(pending, old))
    end
    redis.call('HSET', meta, 'rule', rule, 'kept', integer(taken + 1))
  end
  return {'empty'}
end
if is_building and number - kept >= many then
  return {'building'}
end
while not is_building and kept <= taken and number - kept >= few do
  redis.call('UNLINK', carried_key(pending, kept))
  kept = kept + 1
end

local cursor, carried, found = '0', carried_key(pending, number), nil
redis.call('UNLINK', carried)
if redis.call('HLEN', pending) <= limit then
  redis.call('RENAME', pending, carried)
else
  cursor, found = state[10] or '0', {}
  while #found == 0 do
    cursor, found = unpack(redis.call('HSCAN', pending, cursor, 'COUNT', limit))
  end
  local CHUNK = 3000
  for first = 1, #found, CHUNK do
    local last, members = math.min(first + CHUNK - 1, #found), {}
    redis.call('HSET', carried, unpack(found, first, last))
    for i = first, last, 2 do
      members[#members + 1] = found[i]
    end
    redis.call('HDEL', pending, unpack(members))
  end
end
if redis.call('EXISTS', pending) == 0 then
  redis.call('HDEL', meta, 'waiting', 'identified')
  if held ~= 'evicted' then
    redis.call('HDEL', meta, 'held')
  end
end
local version = next_version(state[7])
redis.call('HSET', meta, 'taken', integer(number), 'settled', integer(number - 1), 'kept', integer(kept), 'took', version,
  'applied', version, 'cursor', cursor, 'carried', integer(number))
return contents(number, version, found)
