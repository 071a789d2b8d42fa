-- Adds rows of a rebuild's snapshot to the shadow, save the members written since the rebuild began.
--
-- KEYS  shadow    sorted set that the rebuild is filling, and root of the names of all that belongs to it
--       recent    sorted set, member -> token of its newest write; since start_rebuild.lua, none is forgotten
--       meta      hash of the index
-- ARGV  building  the generation being built
--       width     of the tie bytes
--       entries   '1' where members have entries
--       dense     '1' where distinct values are counted
--       …         then pairs: score, member; where members have entries, triples: score, member, entry. 3,500
--                 rows at most
-- Returns 1, or 0 with nothing written where another rebuild began, this one was taken for dead, or the server
--         restarted and may have lost rows.
-- Cost  O(rows * (1 + rankings that a member stands in) * log(size)); rows sorted by score insert fastest.

local shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local building, width, entries, dense = unpack(ARGV, 1, 4)
local FIRST = 5
width, entries, dense = tonumber(width), entries == '1', dense == '1'

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('HGET', meta, 'building') ~= building or redis.call('HGET', meta, 'run') ~= run then
  return 0
end
local time = redis.call('TIME')
redis.call('HSET', meta, 'seen', string.format('%.0f', time[1] * 1000000 + time[2]))

local none_written = redis.call('EXISTS', recent) == 0
if none_written and not entries and not dense then
  redis.call('ZADD', shadow, unpack(ARGV, FIRST))
  return 1
end
for i = FIRST, #ARGV, entries and 3 or 2 do
  local score, member, entry = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if none_written or not redis.call('ZSCORE', recent, member) then
    if entries then
      place(shadow, member, score, entry, width, dense)
    else
      enter(shadow, member, score, '', dense)
    end
  end
end
return 1
