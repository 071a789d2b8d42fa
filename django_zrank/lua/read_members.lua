-- uses: server, keys, memberships
-- Read members with the version of their newest write: two readings show if a write came between them.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       recent      sorted set, member -> version of its newest write
--       meta        hash of the index
-- ARGV  generation  that the server must hold
--       width       of the tie bytes
--       memberships  '1' where members have memberships
--       …           then members: primary keys as text
-- Returns of each in turn: score and version, nil for what there is not; where members have memberships, also the membership,
--         '' for none, and those of its facet rankings where the member does not stand with that score, joined
--         by NUL bytes. Nil where the server holds another generation, or is not the one that was written to.
-- Cost  O(members * (1 + rankings that a member stands in)).

local live, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local generation, width, memberships = unpack(ARGV, 1, 3)
local FIRST = 4
width, memberships = tonumber(width), memberships == '1'

if not holds(meta, 'generation', generation) then
  return false
end
local reply = {}
for i = FIRST, #ARGV do
  local member, n = ARGV[i], #reply
  if memberships then
    local membership = redis.call('HGET', memberships_key(live), member) or ''
    local tie, names = read_membership(membership, width)
    local stored = tie .. member
    local score = redis.call('ZSCORE', live, stored)
    local absent = {}
    for name in string.gmatch(names, '%Z+') do
      if redis.call('ZSCORE', live .. ':' .. name, stored) ~= score then
        absent[#absent + 1] = name
      end
    end
    reply[n + 1], reply[n + 2] = score, redis.call('ZSCORE', recent, member)
    reply[n + 3], reply[n + 4] = membership, table.concat(absent, '\0')
  else
    reply[n + 1], reply[n + 2] = redis.call('ZSCORE', live, member), redis.call('ZSCORE', recent, member)
  end
end
return reply
