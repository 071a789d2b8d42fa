-- uses: server, pending
-- Read which scores members should have: those of their rows, with what these lack.
--
-- KEYS  live        sorted set of all members
--       meta        hash of the index
--       pending     hash, member -> its pending change
-- ARGV  generation  that the server must hold
--       rule        'sum', 'max', 'min' or 'last'
--       flushed     the last flush that the database noted when the rows were read
--       …           then pairs: member, score of its row in units; 250 at most
-- Returns {'checked', then the score of each in turn, as text, after a '=' where the member has it}; {'superseded'} where
--         the server holds another generation, or is not the one that was written to, or the rows are too old to tell what
--         they lack.
-- Cost  O(members), for each flush that the rows lack.

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
for n, found in ipairs(redis.call('ZMSCORE', live, unpack(members))) do
  if found and tonumber(found) == tonumber(scores[n]) then
    scores[n] = '=' .. scores[n]
  end
end
table.insert(scores, 1, 'checked')
return scores
