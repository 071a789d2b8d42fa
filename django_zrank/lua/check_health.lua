-- uses: server, keys, identity
-- Return the state that decides if the index on this server is trusted.
--
-- KEYS  root        of the generation that the client believes to be live
--       meta        hash of the index
-- ARGV  generation  that generation, '' for none
--       lease       seconds after which a silent rebuild counts as dead, and is left out
-- Returns {generation, building, behind, applied, the server that was accepted, its term, the owner, this server, '1' if
--         its history has no predecessor, '1' if the root is intact}, each '' if missing. The last is '0' if keys were
--         evicted, '' if another generation is live. The error READONLY on a replica.
-- Cost  O(1).

local root, meta = KEYS[1], KEYS[2]
local generation, lease = unpack(ARGV)

local server, is_replica, is_first = identity()
if is_replica then
  return redis.error_reply('READONLY the server is a replica')
end
local state = redis.call('HMGET', meta, 'generation', 'building', 'behind', 'applied', 'server', 'term', 'owner', 'seen', 'present')
local live, building = state[1] or '', state[2] or ''
if building ~= '' and is_silent(state[8], lease) then
  building = ''
end
local intact = ''
if live ~= '' and live == generation then
  intact = state[9] and not is_evicted(root, state[9]) and '1' or '0'
  -- Only some facet rankings are checked: one that was evicted is found sooner or later.
  for _, name in ipairs(redis.call('ZRANDMEMBER', names_key(root), 4)) do
    if redis.call('EXISTS', ranking_key(root, name)) == 0 then
      intact = '0'
    end
  end
end
return {live, building, state[3] or '', state[4] or '', state[5] or '', state[6] or '', state[7] or '', server,
  is_first and '1' or '', intact}
