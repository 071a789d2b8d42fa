-- uses: clock, identity, built
-- The state in which an index takes scores ahead of their column.

-- Raise an error if this server may not take changes of scores, or not by 'rule', which also names their column and unit.
-- Returns the generation that is being built, if any; and the field 'held' (lib/held.lua). The first change by a rule notes
-- it, until nothing is pending by it (take_pending.lua). INFO takes longer than the rest of a change, so it is called at
-- most once a millisecond ('identified'): no server starts, or is promoted, within a millisecond of its last write.
local function require_writable(meta, generation, rule)
  local state = redis.call('HMGET', meta, 'generation', 'building', 'server', 'identified', 'rule', 'held')
  local live, building, accepted, identified, noted, held = unpack(state)
  if live ~= generation then
    require_live(meta, generation)
  end
  if rule and noted and noted ~= rule then
    error(redis.error_reply('OTHERRULE what is pending was changed by another rule'))
  end
  local now = clock()
  if math.abs(now - (identified or 0)) > 1000 then
    local server, is_replica = identity()
    if is_replica then
      error(redis.error_reply('READONLY the server is a replica'))
    elseif server ~= accepted then
      error(redis.error_reply('UNHEALTHY the server is not the one that was accepted'))
    end
    redis.call('HSET', meta, 'identified', integer(now))
    redis.call('HSETNX', meta, 'waiting', integer(now))
  end
  if rule and not noted then
    redis.call('HSET', meta, 'rule', rule)
  end
  -- A build of another declaration stores members differently. It gets the change from the flush, which marks members.
  if building and string.match(building, '^(.-)%-') ~= string.match(live, '^(.-)%-') then
    building = nil
  end
  return building, held
end
