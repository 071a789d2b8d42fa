-- uses: permissions
-- Drop the change of a member. If this empties the hash, remove its note, or it would count as evicted.
--
-- KEYS  meta     hash of the index
--       pending  hash, member -> its pending change; or one of what a flush carried
-- ARGV  member   primary key as text
--       number   of that flush; '' for what is pending
-- Returns the number of changes that were dropped.
-- Cost  O(1).

local meta, pending = KEYS[1], KEYS[2]
local member, number = unpack(ARGV)

require_commands(meta)
local dropped = redis.call('HDEL', pending, member)
if dropped == 1 then
  local held, carried = unpack(redis.call('HMGET', meta, 'held', 'carried'))
  local is_empty = redis.call('EXISTS', pending) == 0
  if is_empty and number == '' and held ~= 'evicted' then
    redis.call('HDEL', meta, 'held')
  elseif is_empty and number == carried then
    redis.call('HDEL', meta, 'carried')
  end
end
return dropped
