-- A draw (see lib/deck.lua) that takes several calls, and keeps what earlier ones have found.

-- Choose the members that earlier calls chose, if they still can be, and return the number of them that are after. They
-- are as random as those that follow, and are not dealt again.
local function put_back(draw, before, after)
  local reply, is_barred, chosen, behind, carried = draw.reply, draw.is_barred, 0, 0, {}
  local scores = redis.call('ZMSCORE', draw.ranking, unpack(draw.found))
  for i, stored in ipairs(draw.found) do
    local at = scores[i] and redis.call('ZRANK', draw.ranking, stored)
    local is_before = at and at >= before.first and at <= before.last
    local is_behind = at and at >= after.first and at <= after.last
    if (is_before or is_behind) and not is_barred(stored) and not (draw.passes and not draw.passes(stored)) then
      local n = 3 * chosen + 5
      reply[n + 1], reply[n + 2], reply[n + 3] = at, stored, scores[i]
      chosen, behind, carried[stored] = chosen + 1, behind + (is_behind and 1 or 0), true
    end
  end
  draw.chosen = chosen
  function draw.is_barred(stored)
    return carried[stored] or is_barred(stored)
  end
  -- The next band is dealt from its beginning, including the members that were carried.
  function draw.put_back()
    draw.is_barred, draw.put_back = is_barred, nil
    return 0
  end
  return behind
end
