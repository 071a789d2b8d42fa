-- uses: logs, server, bulk, keys, ties, memberships
-- Find members in rankings that their membership doesn't name, and optionally remove them from these.
--
-- KEYS  live        sorted set that is read, and root of the names of all that belongs to it
--       meta        hash of the index
--       pending     hash, member -> its pending change
-- ARGV  generation  that the server must hold
--       width       of the tie bytes
--       dense       '1' if distinct values are counted
--       repair      '1' to remove them
--       …           then pairs: the name of a facet ranking, '' for the whole index, and a stored member
-- Returns {'checked', then for each pair, until the budget of look-ups is spent: the score that the member has, or had until
--         it was removed, in a ranking that its membership doesn't name; else nil}; {'superseded'} if the server holds
--         another generation, or is not the one that was written to.
-- Cost  O(1000).

local live, meta, pending = KEYS[1], KEYS[2], KEYS[3]
local generation, width, dense, repair = unpack(ARGV, 1, 4)
local FIRST = 5
width, dense = tonumber(width), dense == '1'

if not holds(meta, 'generation', generation) then
  return {'superseded'}
end
local was_evicted = is_evicted(live, redis.call('HGET', meta, 'present'))
local reply, leaving, i, spent, BUDGET = {'checked'}, {}, FIRST, 0, 1000
while i <= #ARGV and spent < BUDGET do
  local name, stored = ARGV[i], ARGV[i + 1]
  local tie, member = read_membership(stored, width)
  local said, names = read_membership(redis.call('HGET', memberships_key(live), member) or '', width)
  local belongs = said == tie
    and (name == '' or string.find('\0' .. names .. '\0', '\0' .. name .. '\0', 1, true))
  local score = not belongs and redis.call('ZSCORE', ranking_key(live, name), stored)
  spent = spent + 2
  if score and repair == '1' then
    spent = spent + 6
    local list = list_of(leaving, name)
    list[#list + 1] = stored
  end
  reply[#reply + 1] = score
  i = i + 2
end
change_rankings(live, leaving, {}, width, dense)
if next(leaving) then
  redis.call('UNLINK', log_of(pending)) -- versions don't change, so intersections are made again
end
if repair == '1' and not was_evicted then
  redis.call('HSET', meta, 'present', present(live))
end
return reply
