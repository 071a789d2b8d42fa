-- uses: server, clear
-- Begins a rebuild. Another one that is running gives way, or keeps the newcomer from beginning.
--
-- KEYS  shadow    sorted set to fill, and root of what belongs to it; what a killed rebuild left is cleared
--       recent    sorted set, member -> place of its newest write
--       meta      hash of the index
-- ARGV  building  the new generation
--       polite    '1' not to begin while another one is alive
--       lease     seconds after which a silent rebuild counts as dead
-- Returns the rebuild's token: members written from now on have a higher place. Nil where it did not begin.
-- Cost  O(facet rankings that a killed rebuild left).

local shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local building, polite, lease = unpack(ARGV)

local run = run_id()
local known, seen = unpack(redis.call('HMGET', meta, 'run', 'seen'))
if polite == '1' and seen and known == run and not is_silent(seen, lease) then
  return false
end
local last = redis.call('HGET', meta, 'token')
local token = next_place(last or 0)

-- Older tokens are refused from now on ('started'), so that 'recent' may be emptied.
clear(shadow)
redis.call('UNLINK', recent)
-- The live index of a server that has lost writes takes new ones from now on, but is not to be believed.
if known and known ~= run then
  redis.call('HSET', meta, 'behind', 'rebuild')
end
redis.call('HSET', meta, 'run', run, 'building', building, 'started', token, 'seen', token, 'token', token)
return token
