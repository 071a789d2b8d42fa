-- Add members to a group or remove some, and forget some of those whose time is over.
--
-- KEYS  group  sorted set, primary key -> until when it belongs to the group, in microseconds
-- ARGV  now    in microseconds
--       till   until when members are added, in microseconds; nothing to remove them
--       limit  how many whose time is over are forgotten at most
--       …      then members, each once
-- Returns how many did not belong to it before, or, of those removed, how many did.
-- Cost  O((members + limit) * log(size)).

local group = KEYS[1]
local now, till, limit = unpack(ARGV, 1, 3)
local FIRST = 4
local call = redis.call

local members, added, changed = {unpack(ARGV, FIRST)}, {}, 0
for i, score in ipairs(call('ZMSCORE', group, unpack(members))) do
  local belongs = score and tonumber(score) > tonumber(now) or false
  if belongs == (till == '') then
    changed = changed + 1
  end
  added[2 * i - 1], added[2 * i] = till, members[i]
end
if till == '' then
  call('ZREM', group, unpack(members))
else
  call('ZADD', group, unpack(added))
end
local over = call('ZCOUNT', group, '-inf', now)
if over > 0 then
  call('ZREMRANGEBYRANK', group, 0, math.min(over, limit) - 1)
end
return changed
