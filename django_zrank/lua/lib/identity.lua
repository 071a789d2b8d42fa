-- The server that answers, and its history.

-- The 40 digits after a name in a section of INFO. Plain searches: patterns would take most of a script's time.
local function digits_after(name, info)
  local _, last = string.find(info, name, 1, true)
  return string.sub(info, last + 1, last + 40)
end

-- The identity of the server: its process and its replication history, 'run_id/master_replid'. A restart changes the
-- first, a promotion or a full resync the second. Then true if it is a primary; and true if its history has no predecessor,
-- as after a primary is followed for the first time.
local function identity()
  local info = redis.call('INFO', 'server', 'replication')
  return digits_after('run_id:', info) .. '/' .. digits_after('master_replid:', info),
    string.find(info, 'role:slave', 1, true) == nil, string.find(info, 'master_replid2:0000000000', 1, true) ~= nil
end
