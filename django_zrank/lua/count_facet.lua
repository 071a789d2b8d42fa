-- uses: built, keys
-- Count the members of the index by the values of a facet, some values a call.
--
-- KEYS  live       sorted set of the whole index
--       meta       hash of the index
-- ARGV  build that the client believes to be live
--       facet      prefix of the names of its rankings: the facet's name and a colon, perhaps more
--       after      the last name of the previous call; nothing for the first
--       limit      the most values to count in this call
--       most       the most values to count in all calls
-- Returns the number of values that have members; unless that is more than 'most', name of ranking and number of members for
--         the next of them; the errors of lib/built.lua.
-- Cost  O(limit + log(values)).

local live, meta = KEYS[1], KEYS[2]
local build, facet, after, limit, most = unpack(ARGV)
local call = redis.call

require_live(meta, build)
local names, stop = names_key(live), '(' .. facet .. '\255'
local values = call('ZLEXCOUNT', names, '[' .. facet, stop)
local reply, start = {values}, after == '' and '[' .. facet or '(' .. after
if values <= tonumber(most) then
  for _, name in ipairs(call('ZRANGEBYLEX', names, start, stop, 'LIMIT', 0, limit)) do
    reply[#reply + 1] = name
    reply[#reply + 1] = call('ZCARD', ranking_key(live, name))
  end
end
return reply
