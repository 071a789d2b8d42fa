-- The server that answers, and its history.

-- The identity of the server: its process and its replication history, 'run_id/master_replid'. A restart changes the
-- one; a promotion and a full resync change the other. And whether it is a replica; and whether its history has no
-- predecessor, as after the first replica of a primary attached.
local function identity()
  local info = redis.call('INFO', 'server', 'replication')
  local run, history = string.match(info, 'run_id:(%x+)'), string.match(info, 'master_replid:(%x+)')
  return run .. '/' .. history, string.find(info, 'role:slave', 1, true) ~= nil,
    string.find(info, 'master_replid2:0+\r') ~= nil
end
