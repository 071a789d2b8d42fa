-- Says whether the index on this server can be believed.
--
-- KEYS  meta  hash of the index
-- ARGV  -
-- Returns {generation, building, behind, applied, run_id of the server that was written to, run_id of this one};
--         '' for what there is not.
-- Cost  O(1).

local meta = KEYS[1]

local state = redis.call('HMGET', meta, 'generation', 'building', 'behind', 'applied', 'run')
local server = run_id()
return {state[1] or '', state[2] or '', state[3] or '', state[4] or '', state[5] or '', server}
