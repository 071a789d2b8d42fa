-- uses: server
-- Says whether the index on this server can be believed.
--
-- KEYS  meta  hash of the index
-- ARGV  lease  seconds after which a silent rebuild counts as dead, and as none
-- Returns {generation, building, behind, applied, run_id of the server that was written to, run_id of this one};
--         '' for what there is not.
-- Cost  O(1).

local meta = KEYS[1]
local lease = unpack(ARGV)

local state = redis.call('HMGET', meta, 'generation', 'building', 'behind', 'applied', 'run', 'seen')
local building = state[2] or ''
if building ~= '' and is_silent(state[6], lease) then
  building = ''
end
return {state[1] or '', building, state[3] or '', state[4] or '', state[5] or '', run_id()}
