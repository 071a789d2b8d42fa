-- uses: clock, refusal
-- Add to the score of one member, where it stands in one ranking only: change_scores.lua in a fraction of its time.
--
-- KEYS  live        root of the live generation: sorted set of all members
--       meta        hash of the index
--       pending     hash, member -> its pending change
-- ARGV  generation  that the client believes to be live
--       lowest      score that the change may lead to
--       highest     score that the change may lead to
--       member      primary key as text
--       change      in units
-- Returns {'done', score}; {'missing', member} or {'beyond', member} with nothing changed; and errors: see
--         change_scores.lua.
-- Cost  O(log(size)).

local live, meta, pending = KEYS[1], KEYS[2], KEYS[3]
local generation, lowest, highest, member, change = unpack(ARGV)
local EXACT = 2 ^ 53

local refused, building = refusal(meta, generation)
if refused then
  return refused
end
local by = tonumber(change)
lowest, highest = tonumber(lowest), tonumber(highest)
-- A sum that may lie beyond 2^53 is rounded, and could not be taken back.
if math.max(highest, -lowest) + math.abs(by) > EXACT then
  local before = tonumber(redis.call('ZSCORE', live, member))
  if before and (by > 0 and by > highest - before or by < 0 and by < lowest - before) then
    return {'beyond', member}
  end
end
local score = redis.call('ZADD', live, 'XX', 'INCR', change, member)
if not score then
  return {'missing', member}
end
local after = tonumber(score)
if after > highest and by > 0 or after < lowest and by < 0 then
  redis.call('ZADD', live, 'XX', 'INCR', -by, member)
  return {'beyond', member}
end
redis.call('HINCRBY', pending, member, change)
if building then
  redis.call('ZADD', string.sub(live, 1, -#generation - 1) .. building, 'XX', 'INCR', change, member)
end
return {'done', integer(after)}
