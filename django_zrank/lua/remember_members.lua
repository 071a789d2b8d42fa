-- uses: clock, memory
-- Return the members that were shown to a member, and remember more of them: sample_anywhere.lua does this itself, but over
-- shards the members drawn belong to any of them.
--
-- KEYS  seen      sorted set of members shown to this one -> until when, in microseconds
-- ARGV  remember  microseconds for which members are remembered
--       …         then primary keys
-- Returns the members that were remembered before, the one shown longest ago first.
-- Cost  O(remembered), up to 10,000.

local seen = KEYS[1]
local remember = unpack(ARGV, 1, 1)
local FIRST = 2
local now = clock()
recall(seen, now)
local before = redis.call('ZRANGE', seen, 0, -1)
if ARGV[FIRST] then
  memorize({unpack(ARGV, FIRST)}, seen, now + remember)
end
return before
