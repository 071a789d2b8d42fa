-- Reads members, each with the token of its newest write: whoever reads twice knows whether one came between.
--
-- KEYS  live        sorted set that is read
--       recent      sorted set, member -> token of its newest write
--       meta        hash of the index
-- ARGV  generation  that the server must hold
--       …           then members, as stored
-- Returns score and token of each in turn, nil for what there is not; nil where the server holds another
--         generation, or is not the one that was written to.
-- Cost  O(members).

local live, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local generation = unpack(ARGV, 1, 1)
local FIRST_MEMBER = 2

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('HGET', meta, 'generation') ~= generation or redis.call('HGET', meta, 'run') ~= run then
  return false
end
local reply = {}
for i = FIRST_MEMBER, #ARGV do
  reply[#reply + 1] = redis.call('ZSCORE', live, ARGV[i])
  reply[#reply + 1] = redis.call('ZSCORE', recent, ARGV[i])
end
return reply
