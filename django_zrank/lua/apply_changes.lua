-- uses: clock, server, identity, bulk, beside, memberships, traces, permissions
-- Write members, each unless it was written since the token was taken: then its row must be read again.
--
-- KEYS  live        root of the live build: sorted set of all members, and of the names of all that belongs to it
--       shadow      root of the build that a rebuild is filling
--       recent      sorted set, member -> version of its newest write
--       meta        hash of the index
--       doomed      set of the builds whose keys are to be unlinked: what a rebuild has filled may be evicted
-- ARGV  build       as begin_write.lua returned it
--       building    as begin_write.lua returned it
--       token       as begin_write.lua returned it, or the version of any write since, taken before the rows were read
--       term        as begin_write.lua returned it
--       window      seconds for which a member's version is remembered, at least
--       lease       seconds after which a silent rebuild counts as dead
--       width       of the tie bytes
--       memberships  '1' if members have memberships
--       newest      trace, as begin_write.lua returned it, or the write that has given the token
--       required    traces that the server must have, with spaces: of what the database has noted, and of the pieces of this
--                   write that came before; '' if no drain is to note this write
--       nonce       random text for the trace of this write; '' if no drain is to note it
--       …           then pairs: member, score ('' removes the member); where members have memberships, triples:
--                   member, score, membership; each member once. The members shown to one that is removed are
--                   forgotten.
-- Returns {'written', version of this write, newest trace, members that it did not write…}; {'superseded'} with nothing
--         written if a rebuild began, ended or died since, the server or the term is another, the token is too old to judge
--         or from a history that was abandoned, or Redis evicted what it would be judged by; {'lacking'} with nothing
--         written if a trace is missing.
-- Cost  O(members * (1 + rankings that a member stands in) * log(size)), and as much to forget up to 250 + members
--       versions.

local live, shadow, recent, meta, doomed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local build, building, token, term, window, lease, width, memberships, newest, required, nonce =
  unpack(ARGV, 1, 11)
local FIRST = 12
token, width, memberships = tonumber(token), tonumber(width), memberships == '1'

local state = redis.call('HMGET', meta, 'build', 'building', 'started', 'applied', 'server', 'term', 'heartbeat',
  'floor', 'checkpoint', 'checked', 'present', 'filled', 'guarded', 'behind', 'traces')
local behind, traces = state[14], state[15] or '0'
local floor = tonumber(state[8] or 0)
if (state[1] or '') ~= build or (state[2] or '') ~= building or (state[6] or '') ~= term or token < floor then
  return {'superseded'}
end
if state[5] ~= identity() then
  return {'superseded'}
end
-- start_rebuild.lua forgot the versions of what was written before it.
if state[3] and token < tonumber(state[3]) then
  return {'superseded'}
end
-- A token from before the server was rolled back may equal a version that was given again. What a drain has written since
-- the token was taken has a higher one.
local since = traces_since(traces, newest)
if not since or since ~= '' and tonumber(string.match(since, '%d+')) <= token then
  return {'superseded'}
end
for trace in string.gmatch(required, '%S+') do
  if not traces_since(traces, trace) then
    return {'lacking'}
  end
end
if building ~= '' and is_silent(state[7], lease) then
  return {'superseded'} -- begin_write.lua gives it up
end
local function give_up_rebuild()
  if building ~= '' then
    redis.call('SADD', doomed, building)
    redis.call('HDEL', meta, 'building', 'heartbeat', 'filled')
  end
end
-- Keys that were evicted since the last write would not be missed after this one. Without the versions of members no
-- older token can be compared, and no row of a rebuild.
if state[13] == '1' and redis.call('EXISTS', recent) == 0 then
  give_up_rebuild()
  redis.call('HSET', meta, 'floor', state[4], 'checkpoint', state[4], 'guarded', '0')
  return {'superseded'}
end
if building ~= '' and is_evicted(shadow, state[12]) then
  give_up_rebuild()
  return {'superseded'}
end
if build ~= '' and is_evicted(live, state[11]) then
  behind = 'rebuild'
end
-- If members are in one ranking only, a write that ends half-way leaves scores that their rows have, as does one that ends
-- after all rankings are written.
if memberships or keys_beside(live)[1] then
  require_commands(meta, 'ZREM', 'ZADD', 'ZCARD', 'EXISTS', 'HDEL', 'HSET')
end
-- A server that restarts loses its newest writes, never one from the middle: up to what it says here, all are there.
local applied = next_version(state[4])

-- Counters: an append by '#' costs a search each.
local named, at, count = {}, {}, 0
for i = FIRST, #ARGV, memberships and 3 or 2 do
  count = count + 1
  named[count], at[count] = ARGV[i], i
end
local versions = read_all('ZMSCORE', recent, named)
local members, scores, stands, noted, reply = {}, {}, memberships and {}, {}, {'written', applied}
if nonce ~= '' then
  traces = with_trace(traces, applied .. '.' .. nonce)
end
reply[3] = newest_trace(traces)
count = 0
for n, member in ipairs(named) do
  if versions[n] and tonumber(versions[n]) > token then
    reply[#reply + 1] = member
  else
    local i = at[n]
    count = count + 1
    members[count], scores[count] = member, ARGV[i + 1]
    noted[2 * count - 1], noted[2 * count] = applied, member
    if stands then
      stands[count] = ARGV[i + 2]
    end
  end
end
local evicted = {}
for root, build in pairs({[live] = build, [shadow] = building}) do
  if build ~= '' then
    evicted[root] = write_members(root, members, scores, stands, width)
  end
end
write_all('ZADD', recent, noted)

-- Versions are forgotten by the time that has passed: those up to 'checkpoint' were given before 'checked'. After as
-- long again they are forgotten, and tokens as old are refused. After the clock was set, that time begins again.
local now = clock()
if not state[10] or math.abs(now - state[10]) > window * 1000000 then
  floor = tonumber(state[9] or 0)
  redis.call('HSET', meta, 'floor', integer(floor), 'checkpoint', applied, 'checked', integer(now))
end
if building ~= '' then
  floor = math.min(floor, state[3] - 1)
end
-- To forget those of millions at once, written by a drain, would hold up the server for seconds.
local old = redis.call('ZCOUNT', recent, '-inf', integer(floor))
if old > 0 then
  local FEW = 250
  redis.call('ZREMRANGEBYRANK', recent, 0, math.min(old, FEW + #members) - 1)
end

if evicted[live] then
  behind = 'rebuild'
end
if behind then
  redis.call('HSET', meta, 'behind', behind)
end
if nonce ~= '' then
  redis.call('HSET', meta, 'traces', traces)
end
redis.call('HSET', meta, 'applied', applied, 'present', build ~= '' and present(live) or '',
  'guarded', redis.call('EXISTS', recent))
if evicted[shadow] then
  give_up_rebuild()
elseif building ~= '' then
  redis.call('HSET', meta, 'filled', present(shadow))
end
return reply
