-- uses: joined, permissions
-- Remove members from a group, whether or not their time is over.
--
-- KEYS  group   sorted set, primary key -> its expiry in microseconds
--       joined  hash, primary key -> the names of the facet rankings by which it is counted
--       counts  hash, name of a facet ranking -> number of members that had it when they joined
-- ARGV  …       members, each once
-- Returns the number of members that were in the group.
-- Cost  O(members * (log(size) + facets)).

local group, joined, counts = KEYS[1], KEYS[2], KEYS[3]

local members = ARGV
require_commands(group)
uncount(joined, counts, members)
return redis.call('ZREM', group, unpack(members))
