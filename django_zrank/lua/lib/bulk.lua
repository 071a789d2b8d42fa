-- Commands with many values, and lists of values by name.

-- Run a command on a key with many values, and return the sum of its replies. Lua's unpack fails at 8,000.
local function write_all(command, key, values)
  local sum = 0
  for first = 1, #values, 7000 do
    sum = sum + redis.call(command, key, unpack(values, first, math.min(first + 6999, #values)))
  end
  return sum
end

-- The replies to a command that looks up many values in a key, in order.
local function read_all(command, key, values)
  if #values > 0 and #values <= 7000 then
    return redis.call(command, key, unpack(values))
  end
  local replies = {}
  for first = 1, #values, 7000 do
    for _, reply in ipairs(redis.call(command, key, unpack(values, first, math.min(first + 6999, #values)))) do
      replies[#replies + 1] = reply
    end
  end
  return replies
end

-- The list of a name, created if missing.
local function list_of(lists, name)
  local list = lists[name]
  if not list then
    list = {}
    lists[name] = list
  end
  return list
end

-- MessagePack of many values, one after the other. cmsgpack.pack() takes 4,000 at most.
local function pack_all(values)
  local texts = {}
  for i, value in ipairs(values) do
    texts[i] = cmsgpack.pack(value)
  end
  return table.concat(texts)
end
