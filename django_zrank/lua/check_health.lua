-- uses: server, keys, identity, beside
-- Return the state that decides if the index on this server is trusted.
--
-- KEYS  root        of the build that the client believes to be live
--       meta        hash of the index
-- ARGV  build       that build, '' for none
--       lease       seconds after which a silent rebuild counts as dead, and is left out
-- Returns pairs: 'build', 'building', 'behind', 'applied', 'trusted' (the server that was), its 'term', 'owner' and
--         this 'server', 'traces' (lib/traces.lua), 'taken' and 'took' (take_pending.lua), each '' if missing; 'history', which is 'first' or has a predecessor, 'later'; 'keys', 'intact'
--         or 'evicted', or 'unknown' if another build is live. The error READONLY if the server is not a primary.
-- Cost  O(1).

local root, meta = KEYS[1], KEYS[2]
local build, lease = unpack(ARGV)
-- Functions of parts (lua/before): each returns true if keys of its part are missing that nobody removed.
local parts = {}

-- Libraries come here.

local server, is_primary, is_first = identity()
if not is_primary then
  return redis.error_reply('READONLY the server is not a primary')
end
local state = redis.call('HMGET', meta, 'build', 'building', 'behind', 'applied', 'server', 'term', 'owner', 'heartbeat', 'present',
  'taken', 'traces', 'took')
local live, building = state[1] or '', state[2] or ''
if building ~= '' and is_silent(state[8], lease) then
  building = ''
end
local keys = 'unknown'
if live ~= '' and live == build then
  keys = state[9] and not is_evicted(root, state[9]) and 'intact' or 'evicted'
  if is_torn(root) then
    keys = 'evicted'
  end
  for _, is_lost in ipairs(parts) do
    keys = is_lost() and 'evicted' or keys
  end
  -- Only some facet rankings are checked: one that was evicted is found sooner or later.
  for _, name in ipairs(redis.call('ZRANDMEMBER', names_key(root), 4)) do
    local key = ranking_key(root, name)
    if redis.call('EXISTS', key) == 0 or is_torn(key) then
      keys = 'evicted'
    end
  end
end
return {
  'build', live, 'building', building, 'behind', state[3] or '', 'applied', state[4] or '', 'trusted', state[5] or '',
  'term', state[6] or '', 'owner', state[7] or '', 'server', server,
  'traces', state[11] or '', 'taken', state[10] or '', 'took', state[12] or '', 'history', is_first and 'first' or 'later', 'keys', keys,
}
