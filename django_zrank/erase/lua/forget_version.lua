-- uses: permissions
-- Forget the version of a member's newest write before its time. Older tokens are refused from now on: their rows may have
-- been read before that write.
--
-- KEYS  recent  sorted set, member -> version of its newest write
--       meta    hash of the index
-- ARGV  member  primary key as text
-- Returns 'forgotten', or with nothing changed 'absent'; 'building' if a rebuild may still load an older row of the member.
-- Cost  O(log(size)).

local recent, meta = KEYS[1], KEYS[2]
local member = unpack(ARGV)

if not redis.call('ZSCORE', recent, member) then
  return 'absent'
end
local applied, building = unpack(redis.call('HMGET', meta, 'applied', 'building'))
if building then
  return 'building'
end
require_commands(meta)
redis.call('ZREM', recent, member)
redis.call('HSET', meta, 'floor', applied, 'checkpoint', applied, 'guarded', redis.call('EXISTS', recent))
return 'forgotten'
