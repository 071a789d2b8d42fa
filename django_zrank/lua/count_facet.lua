-- uses: built, keys, ties
-- Count the members of a ranking by the values of a facet.
--
-- KEYS  ranking  sorted set whose members are counted
--       live     sorted set of the whole index
--       meta     hash of the index
-- ARGV  generation that the client believes to be live
--       width    tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       facet    its name and a colon, as rankings of its values are called; of the whole index, also more of a name
--       limit    how many members of an intersection are counted one by one
-- Returns name of a value's ranking, number of members, of each; those that nobody has are left out. The error TOOLARGE with the size
--         of ranking; the error NOTBUILT where the index was never built.
-- Cost  O(values) for the whole index, else O(members of ranking).

local ranking, live, meta = KEYS[1], KEYS[2], KEYS[3]
local generation, width, facet, limit = unpack(ARGV)
local call = redis.call
width = tonumber(width)

local elsewhere = not_live(meta, generation)
if elsewhere then
  return elsewhere
end
local reply = {}
if ranking == live then
  for _, name in ipairs(call('ZRANGEBYLEX', names_key(live), '[' .. facet, '(' .. facet .. '\255')) do
    reply[#reply + 1] = name
    reply[#reply + 1] = call('ZCARD', live .. ':' .. name)
  end
  return reply
end

local size = call('ZCARD', ranking)
if size > tonumber(limit) then
  return redis.error_reply(string.format('TOOLARGE %d %d', size, limit))
end
local counts = {}
for start = 0, size - 1, 1000 do
  local members = call('ZRANGE', ranking, start, start + 999)
  for i, stored in ipairs(members) do
    members[i] = string.sub(stored, tie_length(stored, width) + 1)
  end
  for i, membership in ipairs(call('HMGET', memberships_key(live), unpack(members))) do
    -- One that has just left the index may still stand in an intersection.
    for name in string.gmatch(membership and string.sub(membership, tie_length(membership, width) + 1) or '', '%Z+') do
      if string.sub(name, 1, #facet) == facet then
        counts[name] = (counts[name] or 0) + 1
      end
    end
  end
end
for name, count in pairs(counts) do
  reply[#reply + 1] = name
  reply[#reply + 1] = count
end
return reply
