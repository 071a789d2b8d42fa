-- uses: server, standing
-- Writes members, each unless it was written since the token was taken: then its row must be read again.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       shadow      sorted set that a rebuild is filling, and such a root
--       recent      sorted set, member -> place of its newest write
--       meta        hash of the index
-- ARGV  generation  as begin_write.lua returned it
--       building    as begin_write.lua returned it
--       token       as begin_write.lua returned it, or the place of any write since, taken before the rows were read
--       run         as begin_write.lua returned it
--       window      seconds for which a member's place is remembered
--       lease       seconds after which a silent rebuild counts as dead
--       width       of the tie bytes
--       entries     '1' where members have entries
--       dense       '1' where distinct values are counted
--       …           then pairs: member, score ('' removes the member); where members have entries, triples:
--                   member, score, entry
-- Returns {place of this write among all, members that it did not write…}, or nil with nothing written where a rebuild
--         began, ended or died since, the server is another, or the token is too old to judge.
-- Cost  O(members * (1 + rankings that a member stands in) * log(size)), and as much for up to 1,000 places forgotten.

local live, shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local generation, building, token, run, window, lease, width, entries, dense = unpack(ARGV, 1, 9)
local FIRST = 10
token, width, entries, dense = tonumber(token), tonumber(width), entries == '1', dense == '1'

local state = redis.call('HMGET', meta, 'generation', 'building', 'started', 'token', 'run', 'seen')
local floor = tonumber(state[4] or 0) - window * 1000000
if (state[1] or '') ~= generation or (state[2] or '') ~= building or token <= floor then
  return false
end
if state[5] ~= run or run ~= run_id() then
  return false
end
-- start_rebuild.lua forgot the places of what was written before it.
if state[3] and token < tonumber(state[3]) then
  return false
end
if building ~= '' then
  if is_silent(state[6], lease) then
    return false -- begin_write.lua clears what it left
  end
  floor = math.min(floor, state[3] - 1)
end
-- A server that restarts loses its newest writes, never one from the middle: up to what it says here, all are there.
local applied = next_place(state[4])

-- Members that go into one call: Lua's unpack fails at 8,000 values.
local CHUNK = 3500

local roots = {}
if generation ~= '' then
  roots[#roots + 1] = live
end
if building ~= '' then
  roots[#roots + 1] = shadow
end

-- Members, and where they stand in ARGV. One that is named twice is written as it is named first.
local members, at, seen, reply = {}, {}, {}, {applied}
for i = FIRST, #ARGV, entries and 3 or 2 do
  local member = ARGV[i]
  if not seen[member] then
    seen[member] = true
    members[#members + 1] = member
    at[#at + 1] = i
  end
end

for first = 1, #members, CHUNK do
  local last = math.min(first + CHUNK - 1, #members)
  local places = redis.call('ZMSCORE', recent, unpack(members, first, last))
  -- What one sorted set takes in and loses in one call each; a member that stands in several goes by itself.
  local scored, gone, noted = {}, {}, {}
  for n = first, last do
    local written = places[n - first + 1]
    local member, i = members[n], at[n]
    if written and tonumber(written) > token then
      reply[#reply + 1] = member
    else
      local score = ARGV[i + 1]
      if entries or dense then
        for _, root in ipairs(roots) do
          if entries then
            put(root, member, score, ARGV[i + 2], width, dense)
          elseif score == '' then
            leave(root, member, '', dense)
          else
            enter(root, member, score, '', dense)
          end
        end
      elseif score == '' then
        gone[#gone + 1] = member
      else
        scored[#scored + 1] = score
        scored[#scored + 1] = member
      end
      noted[#noted + 1] = applied
      noted[#noted + 1] = member
    end
  end
  for _, root in ipairs(roots) do
    if #gone > 0 then
      redis.call('ZREM', root, unpack(gone))
    end
    if #scored > 0 then
      redis.call('ZADD', root, unpack(scored))
    end
  end
  if #noted > 0 then
    redis.call('ZADD', recent, unpack(noted))
  end
end

-- Places may be remembered for longer. To forget those of millions at once, written ten minutes ago by a drain, would
-- hold up the server for seconds.
local old = redis.call('ZCOUNT', recent, '-inf', string.format('%.0f', floor))
if old > 0 then
  local FEW = 1000
  redis.call('ZREMRANGEBYRANK', recent, 0, math.min(old, FEW + 2 * #members) - 1)
end

redis.call('HSET', meta, 'applied', applied, 'token', applied)
return reply
