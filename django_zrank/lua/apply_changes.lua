-- Writes members, each unless a write with a higher token came first.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       shadow      sorted set that a rebuild is filling, and such a root
--       recent      sorted set, member -> token of its newest write
--       meta        hash of the index
-- ARGV  generation  as begin_write.lua returned it
--       building    as begin_write.lua returned it
--       token       as begin_write.lua returned it
--       run         as begin_write.lua returned it
--       window      seconds for which a member's token is remembered
--       width       of the tie bytes
--       entries     '1' where members have entries
--       dense       '1' where distinct values are counted
--       …           then pairs: member, score ('' removes the member); where members have entries, triples:
--                   member, score, entry
-- Returns the place of this write among all (a token), or nil with nothing written where a rebuild began or
--         ended since, the server is another, or the token is too old to judge.
-- Cost  O(members * (1 + rankings that a member stands in) * log(size)).

local live, shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local generation, building, token, run, window, width, entries, dense = unpack(ARGV, 1, 8)
local FIRST = 9
width, entries, dense = tonumber(width), entries == '1', dense == '1'

local state = redis.call('HMGET', meta, 'generation', 'building', 'started', 'token', 'run')
local floor = tonumber(state[4] or 0) - window * 1000000
if (state[1] or '') ~= generation or (state[2] or '') ~= building or tonumber(token) <= floor then
  return false
end
if state[5] ~= run or run ~= run_id() then
  return false
end
-- start_rebuild.lua forgot the tokens of what was written before it.
if state[3] and tonumber(token) < tonumber(state[3]) then
  return false
end
if building ~= '' then
  floor = math.min(floor, state[3] - 1)
end

local function write(root, member, score, entry)
  if entries then
    place(root, member, score, entry, width, dense)
  elseif score == '' then
    leave(root, member, '', dense)
  else
    enter(root, member, score, '', dense)
  end
end

for i = FIRST, #ARGV, entries and 3 or 2 do
  local member, score, entry = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local written = redis.call('ZSCORE', recent, member)
  if not written or tonumber(written) < tonumber(token) then
    if generation ~= '' then
      write(live, member, score, entry)
    end
    if building ~= '' then
      write(shadow, member, score, entry)
    end
    redis.call('ZADD', recent, token, member)
  end
end
redis.call('ZREMRANGEBYSCORE', recent, '-inf', string.format('%.0f', floor))

-- A server that restarts loses its last writes, never one from the middle: what it has applied up to here, and
-- nothing later, is there.
local time = redis.call('TIME')
local applied = string.format('%.0f', math.max(time[1] * 1000000 + time[2], state[4] + 1))
redis.call('HSET', meta, 'applied', applied, 'token', applied)
return applied
