-- uses: clock, memory
-- Tell whom a member was shown, and remember more of them: sample_anywhere.lua does it by itself, but over shards whoever
-- was drawn belongs to any of them.
--
-- KEYS  seen      sorted set of members shown to this one -> until when, in microseconds
-- ARGV  remember  microseconds for which members are remembered
--       …         then primary keys
-- Returns those who were remembered before, the one shown longest ago first.
-- Cost  O(remembered), of whom there are up to 10,000.

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
