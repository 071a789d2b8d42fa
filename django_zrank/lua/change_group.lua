-- uses: clock, logs
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

local members, added, noted, changed, now = {unpack(ARGV, FIRST)}, {}, {}, 0, clock()
local joins, till = lifetime ~= '', now + (tonumber(lifetime) or 0)
local expiry = till < math.huge and integer(till) or 'inf'
for i, score in ipairs(call('ZMSCORE', group, unpack(members))) do
  local until_then = score and tonumber(score)
  local belongs = until_then and until_then > now or false
  if belongs ~= joins then
    changed = changed + 1
  end
  added[2 * i - 1], added[2 * i] = expiry, members[i]
  -- Renewals need not be followed, unless the member had expired, or a scan is past the new expiry.
  if not joins and score or joins and (not belongs or till < until_then) then
    noted[#noted + 1] = members[i]
  end
end
if joins then
  if call('EXISTS', group) == 0 then
    call('UNLINK', log_of(group)) -- it may have been evicted
  end
  call('ZADD', group, unpack(added))
else
  call('ZREM', group, unpack(members))
end
if noted[1] then
  note_changed(log_of(group), noted)
end
forget_expired(group, integer(now), limit)
return changed
