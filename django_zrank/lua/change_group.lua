-- uses: clock, logs
-- Add members to a group, or remove them, and remove some expired ones.
--
-- KEYS  group  sorted set, primary key -> its expiry in microseconds
-- ARGV  now    in microseconds
--       till   the expiry of the members to add, in microseconds; nothing to remove them
--       limit  the most expired members to remove
--       …      then members, each once
-- Returns the number of members that were not in the group before they were added, or were before they were removed.
-- Cost  O((members + limit) * log(size)).

local group = KEYS[1]
local now, till, limit = unpack(ARGV, 1, 3)
local FIRST = 4
local call = redis.call

local members, added, noted, changed, time = {unpack(ARGV, FIRST)}, {}, {}, 0, clock()
for i, score in ipairs(call('ZMSCORE', group, unpack(members))) do
  local until_then = score and tonumber(score)
  local belongs = until_then and until_then > tonumber(now) or false
  if belongs == (till == '') then
    changed = changed + 1
  end
  added[2 * i - 1], added[2 * i] = till, members[i]
  -- Renewals need not be followed, unless the member had expired by the server's clock, or a scan is past the new expiry.
  if till == '' and score or till ~= '' and (not belongs or until_then <= time or tonumber(till) < until_then) then
    noted[#noted + 1] = members[i]
  end
end
if till == '' then
  call('ZREM', group, unpack(members))
else
  if call('EXISTS', group) == 0 then
    call('UNLINK', log_of(group)) -- it may have been evicted
  end
  call('ZADD', group, unpack(added))
end
if noted[1] then
  note_changed(log_of(group), noted)
end
forget_expired(group, now, limit)
return changed
