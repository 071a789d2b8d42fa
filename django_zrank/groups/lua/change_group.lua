-- uses: clock
-- Add members to a group, or remove them, and remove some expired ones.
--
-- KEYS  group     sorted set, primary key -> its expiry in microseconds
-- ARGV  lifetime  of the members to add, in microseconds, or 'inf'; nothing to remove them
--       limit     the most expired members to remove
--       …         then members, each once
-- Returns the number of members that were not in the group before they were added, or were before they were removed.
-- Cost  O((members + limit) * log(size)).

local group = KEYS[1]
local lifetime, limit = unpack(ARGV, 1, 2)
local FIRST = 3
local call = redis.call

local members, added, changed, now = {unpack(ARGV, FIRST)}, {}, 0, clock()
local joins, till = lifetime ~= '', now + (tonumber(lifetime) or 0)
local expiry = till < math.huge and integer(till) or 'inf'
for i, score in ipairs(call('ZMSCORE', group, unpack(members))) do
  local belongs = score and tonumber(score) > now or false
  if belongs ~= joins then
    changed = changed + 1
  end
  added[2 * i - 1], added[2 * i] = expiry, members[i]
end
-- These come first: an account that may not use the next command has changed nothing by them.
local expired = call('ZRANGE', group, '-inf', integer(now), 'BYSCORE', 'LIMIT', 0, limit)
if expired[1] then
  call('ZREM', group, unpack(expired))
end
if joins then
  call('ZADD', group, unpack(added))
else
  call('ZREM', group, unpack(members))
end
return changed
