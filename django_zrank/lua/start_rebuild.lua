-- uses: clock, server, identity, permissions
-- Begin a rebuild, in place of one that is running or, if polite, only if none is.
--
-- KEYS  recent    sorted set, member -> version of its newest write
--       meta      hash of the index
--       doomed    set of the builds whose keys are to be unlinked: that of a killed rebuild is added
-- ARGV  building  the new build
--       owner     name of the database's side
--       server    identity of the server that is known under that term
--       term      under which the database knows this server
--       polite    '1' to give way to another one that is alive
--       lease     seconds after which a silent rebuild counts as dead
-- Returns 'done', or 'superseded' with nothing changed if another one is alive, or a later term is known here, or this
--         is another server.
-- Cost  O(1).

local recent, meta, doomed = KEYS[1], KEYS[2], KEYS[3]
local building, owner, server, term, polite, lease = unpack(ARGV)
-- Functions of parts (lua/before): each returns true if keys of its part are missing, and forgets them: the build is complete
-- without them.
local parts = {}

-- Libraries come here.

if identity() ~= server then
  return 'superseded'
end
local state = redis.call('HMGET', meta, 'server', 'term', 'heartbeat', 'applied', 'building', 'build')
local trusted, known, heartbeat, applied, other, build = unpack(state, 1, 6)
local is_same = trusted == server and known == term
if other == building then
  return 'done' -- sent twice: the reply was lost
end
if tonumber(known or 0) > tonumber(term) then
  return 'superseded'
end
if polite == '1' and other and is_same and not is_silent(heartbeat, lease) then
  return 'superseded'
end
require_commands(meta)
-- Older tokens are refused from now on ('started'), so that 'recent' may be emptied. This comes first: a server without
-- memory refuses SADD and HSET as the first write of a script, and what a killed rebuild left would stay.
redis.call('UNLINK', recent)
if other then
  redis.call('SADD', doomed, other)
end
redis.call('HDEL', meta, 'filled', 'guarded', 'loaded')
local is_evicted = false
for _, forget in ipairs(parts) do
  is_evicted = forget() or is_evicted
end
-- The live build of a server that has lost writes takes new ones from now on, but must not be trusted.
if build and (is_evicted or not is_same) then
  redis.call('HSET', meta, 'behind', 'rebuild')
end
local started = next_version(applied)
redis.call('HSET', meta, 'owner', owner, 'server', server, 'term', term, 'building', building, 'started', started,
  'applied', started, 'heartbeat', integer(clock()))
return 'done'
