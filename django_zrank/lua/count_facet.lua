-- uses: built, keys
-- Count the members of the index by the values of a facet, some values a call.
--
-- KEYS  live       sorted set of the whole index
--       meta       hash of the index
-- ARGV  generation that the client believes to be live
--       facet      prefix of the names of its rankings: the facet's name and a colon, perhaps more
--       after      the last name of the previous call; nothing for the first
--       limit      the most values to count
-- Returns name of ranking, number of members for each value that has any; the errors of lib/built.lua.
-- Cost  O(limit + log(values)).

local live, meta = KEYS[1], KEYS[2]
local generation, facet, after, limit = unpack(ARGV)
local call = redis.call

require_live(meta, generation)
local reply, from = {}, after == '' and '[' .. facet or '(' .. after
for _, name in ipairs(call('ZRANGEBYLEX', names_key(live), from, '(' .. facet .. '\255', 'LIMIT', 0, limit)) do
  reply[#reply + 1] = name
  reply[#reply + 1] = call('ZCARD', ranking_key(live, name))
end
return reply
