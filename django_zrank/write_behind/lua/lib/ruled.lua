-- uses: writable
-- The rule by which scores change.

-- Raise an error if this server may not take changes of scores, or not by 'rule', which also names their column and unit.
-- Returns the build that is being built, if any; and the field 'held' (lib/held.lua). The first change by a rule
-- notes it, until nothing is pending by it (take_pending.lua).
local function require_rule(meta, build, rule)
  local building, noted, held = require_writable(meta, build, 'rule', 'held')
  if noted and noted ~= rule then
    error(redis.error_reply('UNAVAILABLE changes under the former write_behind are not flushed yet; run sync_zrank, '
      .. 'then scores can change again'))
  end
  if not noted then
    redis.call('HSET', meta, 'rule', rule)
  end
  return building, held
end
