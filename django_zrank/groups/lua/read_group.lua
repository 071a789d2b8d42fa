-- uses: clock
-- Read some members of a group whose time is not over.
--
-- KEYS  group   sorted set, primary key -> its expiry in microseconds
-- ARGV  cursor  the one that the last reply returned; 0 at first
--       limit   the members to look at, about
-- Returns the next cursor, '0' after the last members; then the members, some of which an earlier reply may have had.
-- Cost  O(limit).

local group = KEYS[1]
local cursor, limit = unpack(ARGV, 1, 2)

local found, now = redis.call('ZSCAN', group, cursor, 'COUNT', limit), clock()
local members = {found[1]}
for at = 1, #found[2], 2 do
  if tonumber(found[2][at + 1]) > now then
    members[#members + 1] = found[2][at]
  end
end
return members
