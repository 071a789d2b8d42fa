-- uses: clock, pending, sums
-- Changes that a flush carried, and that no column has.

-- Put them back into the pending changes, before the later ones of the same members.
local function return_pending(pending, rule, members, changes)
  local operation = operation_of(rule)
  if operation == 'sum' then
    return add_pending(pending, members, changes)
  end
  local merged = {}
  for n, later in ipairs(redis.call('HMGET', pending, unpack(members))) do
    local change = changes[n]
    if later then
      change = integer(changed(operation, tonumber(changes[n]), tonumber(later)))
    end
    merged[2 * n - 1], merged[2 * n] = members[n], change
  end
  redis.call('HSET', pending, unpack(merged))
end
