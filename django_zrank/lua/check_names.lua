-- uses: server, keys
-- Find names of facet rankings that are registered without a ranking, or the reverse, and optionally repair them.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       meta        hash of the index
-- ARGV  generation  that the server must hold
--       repair      '1' to register exactly the names of existing rankings
--       …           then names
-- Returns {'checked', then for each name 'wrong' or 'right'}; {'superseded'} if the server holds another generation,
--         or is not the one that was written to.
-- Cost  O(names), three look-ups each: 250 at a time.

local live, meta = KEYS[1], KEYS[2]
local generation, repair = unpack(ARGV, 1, 2)
local FIRST = 3

if not holds(meta, 'generation', generation) then
  return {'superseded'}
end
local was_evicted = is_evicted(live, redis.call('HGET', meta, 'present'))
local reply = {'checked'}
for i = FIRST, #ARGV do
  local name = ARGV[i]
  local there = redis.call('EXISTS', ranking_key(live, name)) == 1
  local wrong = redis.call('ZSCORE', names_key(live), name) ~= (there and '0')
  if wrong and repair == '1' then
    if there then
      redis.call('ZADD', names_key(live), 0, name)
    else
      redis.call('ZREM', names_key(live), name)
    end
  end
  reply[#reply + 1] = wrong and 'wrong' or 'right'
end
if repair == '1' and not was_evicted then
  redis.call('HSET', meta, 'present', present(live))
end
return reply
