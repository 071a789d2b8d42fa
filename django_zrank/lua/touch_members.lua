-- uses: clock, writable, keys
-- Note that members were seen now, ahead of their column.
--
-- KEYS  live         root of the live generation: sorted set of all members, and of the names of all that belongs to it
--       meta         hash of the index
--       touched      sorted set, member -> when it was last seen, if its column doesn't have that yet
--       due          sorted set, member -> when its column may be written again
-- ARGV  generation   that the client believes to be live
--       memberships  '1' if members have memberships
--       …            then members: primary keys as text; 1,000 at most
-- Returns the members that aren't ranked, which are not touched; and errors, as in change_scores.lua.
-- Cost  O(members * log(size)).

local live, meta, touched, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local generation, memberships = unpack(ARGV, 1, 2)
local FIRST = 3

require_writable(meta, generation)
local members = {}
for i = FIRST, #ARGV do
  members[#members + 1] = ARGV[i]
end
-- A member without a membership is stored plainly.
local plain, known = redis.call('ZMSCORE', live, unpack(members)), {}
if memberships == '1' then
  known = redis.call('HMGET', memberships_key(live), unpack(members))
end
local now, seen, missing = integer(clock()), {}, {}
for n, member in ipairs(members) do
  if plain[n] or known[n] then
    seen[#seen + 1], seen[#seen + 2] = now, member
  else
    missing[#missing + 1] = member
  end
end
if #seen > 0 then
  redis.call('ZADD', touched, 'GT', unpack(seen))
  redis.call('ZADD', due, 'NX', unpack(seen))
end
return missing
