-- uses: server, pending
-- Read the scores that members should have: those of their rows, with the changes that the rows lack.
--
-- KEYS  live        sorted set of all members
--       meta        hash of the index
--       pending     hash, member -> its pending change
-- ARGV  generation  that the server must hold
--       rule        'sum', 'max', 'min' or 'last'
--       flushed     the last flush that the database noted when the rows were read
--       …           then pairs: member, score of its row in units; 250 at most
-- Returns {'checked', then for each {score as text, 'right' if the member has it, else 'wrong'}}; {'superseded'} if the
--         server holds another generation, or is not the one that was written to, or the rows are too old to tell what
--         they lack.
-- Cost  O(members) for each flush that the rows lack.

local live, meta, pending = KEYS[1], KEYS[2], KEYS[3]
local generation, rule, flushed = unpack(ARGV, 1, 3)
local FIRST = 4

local hashes
if holds(meta, 'generation', generation) then
  hashes, rule = unflushed(pending, meta, tonumber(flushed), rule)
end
if not hashes then
  return {'superseded'}
end
local members, scores, at = {}, {}, {}
for i = FIRST, #ARGV, 2 do
  local n = #members + 1
  members[n], scores[n], at[n] = ARGV[i], ARGV[i + 1], n
end
apply_pending(hashes, rule, members, scores, at)
local reply = {'checked'}
for n, found in ipairs(redis.call('ZMSCORE', live, unpack(members))) do
  reply[n + 1] = {scores[n], found and tonumber(found) == tonumber(scores[n]) and 'right' or 'wrong'}
end
return reply
