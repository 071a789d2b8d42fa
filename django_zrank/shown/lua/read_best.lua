-- uses: keys
-- Read members from a position on by ZRANGE, and their memberships, as of the same moment. Stored members are primary keys.
--
-- KEYS  root  sorted set of all members
-- ARGV  …     what follows the key in a call of ZRANGE, WITHSCORES at its end
-- Returns {the reply to ZRANGE, the stored members in it, the membership of each, or nil}
-- Cost  O(log(size) + members)

local root = KEYS[1]

local reply, members = redis.call('ZRANGE', root, unpack(ARGV)), {}
for i = 1, #reply, 2 do
  members[(i + 1) / 2] = reply[i]
end
return {reply, members, members[1] and redis.call('HMGET', memberships_key(root), unpack(members)) or {}}
