-- uses: clock, memory
-- Return the members that were shown to a member, and remember more. sample_anywhere.lua does this itself; over shards,
-- members of any shard are drawn.
--
-- KEYS  seen      sorted set of members shown to this one -> until when, in microseconds
-- ARGV  remember  microseconds for which members are remembered
--       …         then primary keys
-- Returns the members that were remembered before, in the order in which they were shown.
-- Cost  O(remembered), up to 1,000.

local seen = KEYS[1]
local remember = unpack(ARGV, 1, 1)
local FIRST = 2
local now = clock()
forget_old(seen, now)
local before = remembered(seen)
if ARGV[FIRST] then
  local shown = {}
  for i = FIRST, #ARGV do
    shown[#shown + 1] = ARGV[i]
  end
  memorize(shown, seen, now + remember)
end
return before
