-- Sums of pending changes.

-- Add changes, in units, to the pending changes of members, by few commands.
local function add_pending(pending, members, changes)
  local EXACT, sums = 2 ^ 53, {}
  for n, before in ipairs(redis.call('HMGET', pending, unpack(members))) do
    local held, change = tonumber(before) or 0, tonumber(changes[n])
    local sum = held + change
    if math.abs(held) < EXACT and math.abs(change) < EXACT and math.abs(sum) < EXACT then
      sums[#sums + 1], sums[#sums + 2] = members[n], string.format('%.0f', sum)
    else
      redis.call('HINCRBY', pending, members[n], changes[n])
    end
  end
  if sums[1] then
    redis.call('HSET', pending, unpack(sums))
  end
end
