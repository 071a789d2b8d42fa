-- Says whether the index on this server can be believed.
--
-- KEYS  meta  hash of the index
-- ARGV  -
-- Returns {generation, building, behind, applied, 1 where the server is the one that was written to, else 0};
--         '' for what there is not.
-- Cost  O(1).

local meta = KEYS[1]

local state = redis.call('HMGET', meta, 'generation', 'building', 'behind', 'applied', 'run')
local same = state[5] == string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return {state[1] or '', state[2] or '', state[3] or '', state[4] or '', same and 1 or 0}
