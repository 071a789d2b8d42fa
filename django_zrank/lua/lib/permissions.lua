-- The commands that the account of a client may use.

-- Return true if the account may use a command on a key. Redis 8 wants as many arguments as the command takes; TIME takes
-- none. Those that take a number of keys get one: for an account that may use some keys only, Valkey 9.1 would read it from
-- beyond the arguments, and crash.
local function may_use(command, key)
  local is_numbered = command == 'ZDIFFSTORE' or command == 'ZUNIONSTORE'
  local keys = is_numbered and {key, '1', key} or {key}
  local is_asked, answer = pcall(redis.acl_check_cmd, command, unpack(keys))
  while not is_asked and #keys < 4 do
    keys[#keys + 1] = key
    is_asked, answer = pcall(redis.acl_check_cmd, command, unpack(keys))
  end
  if not is_asked then
    answer = redis.acl_check_cmd(command)
  end
  return answer
end

-- Raise the error NOPERM unless the account may use all of these commands on a key. A server ends a script at the first
-- command that it refuses, and keeps what was written until then. If a call names none, scripts.py adds all commands that
-- follow, and those of the libraries. Each takes a tenth of a microsecond or more, so small scripts name those that
-- matter. Redis 7.0 and Valkey 9.1 crash if SET is checked without a key, for an account that may use some keys only.
local function require_commands(key, ...)
  for i = 1, select('#', ...) do
    local command = select(i, ...)
    if not may_use(command, key) then
      error(redis.error_reply('NOPERM the account may not use ' .. command .. ', so nothing was changed'))
    end
  end
end
