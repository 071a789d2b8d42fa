-- uses: clock
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

-- The error that keeps scores from beginning on this server, or nothing. INFO takes longer than all else of a change: so
-- it is asked when a millisecond has passed since it was ('identified'). No server starts, and none is promoted, within
-- a millisecond of its last write.
local function refusal(meta, accepted, identified)
  local now = clock()
  if math.abs(now - (identified or 0)) <= 1000 then
    return nil
  end
  local server, is_replica = identity()
  if is_replica then
    return redis.error_reply('READONLY the server is a replica')
  elseif server ~= accepted then
    return redis.error_reply('UNHEALTHY the server is not the one that was accepted')
  end
  redis.call('HSET', meta, 'identified', integer(now))
  redis.call('HSETNX', meta, 'waiting', integer(now))
end
