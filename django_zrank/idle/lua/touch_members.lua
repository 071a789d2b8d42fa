-- uses: clock, writable, keys
-- Return those of the members touched now whose column needs a write: those that aren't ranked, and those whose column has
-- not been written for a while.
--
-- KEYS  live         root of the live build: sorted set of all members, and of the names of all that belongs to it
--       meta         hash of the index
--       touched      sorted set, member -> when its column may be written again
-- ARGV  build        that the client believes to be live
--       memberships  '1' if members have memberships
--       rest         microseconds between two writes of a column: a time that is further away was noted by a wrong clock
--       …            then members: primary keys as text; 1,000 at most
-- Returns {the members that aren't ranked, those whose column is due}; and errors, as in change_scores.lua.
-- Cost  O(members * log(size)).

local live, meta, touched = KEYS[1], KEYS[2], KEYS[3]
local build, memberships, rest = unpack(ARGV, 1, 3)
local FIRST = 4

require_writable(meta, build)
local members = {unpack(ARGV, FIRST)}
-- A member without a membership is stored plainly.
local plain, known = redis.call('ZMSCORE', live, unpack(members)), {}
if memberships == '1' then
  known = redis.call('HMGET', memberships_key(live), unpack(members))
end
local now, missing, due = clock(), {}, {}
for n, rested in ipairs(redis.call('ZMSCORE', touched, unpack(members))) do
  if not (plain[n] or known[n]) then
    missing[#missing + 1] = members[n]
  elseif not rested or tonumber(rested) <= now or tonumber(rested) > now + rest then
    due[#due + 1] = members[n]
  end
end
return {missing, due}
