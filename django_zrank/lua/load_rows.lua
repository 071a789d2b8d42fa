-- uses: clock, identity, server, bulk, keys, ties, beside, memberships
-- Add rows of a rebuild's snapshot to the shadow, except members that were written since the rebuild began.
--
-- KEYS  shadow    root of the build that the rebuild is filling: sorted set of all members, and of the names of all
--                 that belongs to it
--       recent    sorted set, member -> version of its newest write; since start_rebuild.lua, none is forgotten
--       meta      hash of the index
-- ARGV  building  the build being filled
--       width     of the tie bytes
--       memberships  '1' if members have memberships
--       rows      MessagePack: of each group of rows that stand in the same facet rankings, the names of these as a
--                 membership has them; MessagePack of score and stored member of each row in turn; and MessagePack of
--                 member and membership of each, empty where they have none. All texts; 3,500 rows at most
--       before    number of rows that the rebuild has loaded before
--       after     number of rows with these; if it is the same, this is a heartbeat
-- Returns 'done', or 'superseded' with nothing written if another rebuild began, this one was taken for dead, or the
--         server restarted and may have lost rows, or evicted some.
-- Cost  O(rows * (1 + rankings that a member stands in) * log(size)); rows sorted by score insert fastest.

local shadow, recent, meta = KEYS[1], KEYS[2], KEYS[3]
local building, width, memberships, rows, before, after = unpack(ARGV, 1, 6)
width, memberships = tonumber(width), memberships == '1'

local state = redis.call('HMGET', meta, 'building', 'server', 'filled', 'guarded', 'loaded')
if state[1] ~= building or state[2] ~= identity() then
  return 'superseded'
end
-- A server that is rolled back with its memory lacks rows. If the reply was lost, these were loaded before.
local loaded = state[5] or '0'
if before == after then
  before, after = loaded, loaded
end
if loaded ~= before and loaded ~= after then
  return 'superseded'
end
-- Keys that were evicted would not be missed after this: rows that were loaded, or the versions that later rows give
-- way to.
local is_guarded = redis.call('EXISTS', recent) == 1
if is_evicted(shadow, state[3]) or state[4] == '1' and not is_guarded then
  return 'superseded'
end

local groups = {cmsgpack.unpack(rows)}
if not is_guarded and not memberships and not keys_beside(shadow)[1] then
  if #groups > 0 then -- one group; none if this is a heartbeat
    redis.call('ZADD', shadow, cmsgpack.unpack(groups[2]))
  end
  redis.call('HSET', meta, 'heartbeat', integer(clock()), 'filled', present(shadow), 'loaded', after)
  return 'done'
end

-- A group's rows and memberships, packed, but for members that were written since the rebuild began.
local function unwritten(packed, entries)
  local given, stood, members = {cmsgpack.unpack(packed)}, {cmsgpack.unpack(entries)}, {}
  for i = 2, #given, 2 do
    members[i / 2] = stood[i - 1] or given[i]
  end
  local left, stands = {}, {}
  for n, version in ipairs(read_all('ZMSCORE', recent, members)) do
    if not version then
      left[#left + 1], left[#left + 2] = given[2 * n - 1], given[2 * n]
      stands[#stands + 1], stands[#stands + 2] = stood[2 * n - 1], stood[2 * n]
    end
  end
  if #left < #given then
    return pack_all(left), pack_all(stands)
  end
  return packed, entries
end

-- A member that was not written since the rebuild began stands nowhere yet, unless the query has returned its row twice.
-- Rows are collected as texts, and unpacked by C: a loop of Lua over them would take as long as the commands.
local entering, stands = {[''] = {}}, {}
for i = 1, #groups, 3 do
  local names, packed, entries = groups[i], groups[i + 1], groups[i + 2]
  if is_guarded then
    packed, entries = unwritten(packed, entries)
  end
  for name in rankings_of(names) do
    local texts = list_of(entering, name)
    texts[#texts + 1] = packed
  end
  stands[#stands + 1] = entries
end
for name, texts in pairs(entering) do
  entering[name] = {cmsgpack.unpack(table.concat(texts))}
end
if change_rankings(shadow, {}, entering, width) then
  return 'superseded'
end
write_all('HSET', memberships_key(shadow), {cmsgpack.unpack(table.concat(stands))})
redis.call('HSET', meta, 'heartbeat', integer(clock()), 'filled', present(shadow), 'loaded', after)
return 'done'
