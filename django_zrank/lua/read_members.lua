-- uses: server, keys, ties
-- Read members with the version of their newest write, so that two readings show if a write came in between.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       recent      sorted set, member -> version of its newest write
--       meta        hash of the index
-- ARGV  generation  that the server must hold
--       width       of the tie bytes
--       memberships '1' if members have memberships
--       …           then members: primary keys as text
-- Returns {'checked', then for each member, until the budget of look-ups is spent: {score, version}, each nil if missing; if
--         members have memberships, also the membership, '' for none, and its facet rankings in which the member doesn't
--         have that score, joined by NUL bytes}; {'superseded'} if the server holds another generation, or is not the one
--         that was written to.
-- Cost  O(1000), or what one member takes: O(1 + its rankings).

local live, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local generation, width, memberships = unpack(ARGV, 1, 3)
local FIRST = 4
width, memberships = tonumber(width), memberships == '1'

if not holds(meta, 'generation', generation) then
  return {'superseded'}
end
local reply, i, spent, BUDGET = {'checked'}, FIRST, 0, 1000
while i <= #ARGV and spent < BUDGET do
  local member, n = ARGV[i], #reply + 1
  if memberships then
    local membership = redis.call('HGET', memberships_key(live), member) or ''
    local tie, names = read_membership(membership, width)
    local stored = tie .. member
    local score = redis.call('ZSCORE', live, stored)
    local absent = {}
    spent = spent + 3
    for name in string.gmatch(names, '%Z+') do
      spent = spent + 1
      if redis.call('ZSCORE', ranking_key(live, name), stored) ~= score then
        absent[#absent + 1] = name
      end
    end
    reply[n] = {score, redis.call('ZSCORE', recent, member), membership, table.concat(absent, '\0')}
  else
    spent = spent + 2
    reply[n] = {redis.call('ZSCORE', live, member), redis.call('ZSCORE', recent, member)}
  end
  i = i + 1
end
return reply
