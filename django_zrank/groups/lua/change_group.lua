-- uses: clock, keys, joined, permissions
-- Add members to a group, or remove them, and remove some expired ones.
--
-- KEYS  group       sorted set, primary key -> its expiry in microseconds
--       joined      hash, primary key -> the names of the facet rankings by which it is counted
--       counts      hash, name of a facet ranking -> number of members that had it when they joined
--       root        sorted set of the build that the client believes to be live
--       meta        hash of the index
-- ARGV  lifetime    of the members to add, in microseconds, or 'inf'; nothing to remove them
--       limit       the most expired members to remove
--       facets      names of the facets by which members that join are counted, joined by NUL bytes; nothing for none
--       width       of tie bytes in memberships
--       build       that the client believes to be live; nothing for none
--       …           then members, each once
-- Returns the number of members that were not in the group before they were added, or were before they were removed.
-- Cost  O((members + limit) * (log(size) + facets)).

local group, joined, counts, root, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lifetime, limit, facets, width, build = unpack(ARGV, 1, 5)
local FIRST = 6
local call = redis.call

local is_counted = facets ~= '' or call('EXISTS', joined) == 1
local members, added, new, stale, belonging, now = {unpack(ARGV, FIRST)}, {}, {}, {}, 0, clock()
local joins, till = lifetime ~= '', now + (tonumber(lifetime) or 0)
local expiry = till < math.huge and integer(till) or 'inf'
for i, score in ipairs(call('ZMSCORE', group, unpack(members))) do
  if score and tonumber(score) > now then
    belonging = belonging + 1
  else
    new[i - belonging] = members[i]
    if score then
      stale[#stale + 1] = members[i]
    end
  end
  added[2 * i - 1], added[2 * i] = expiry, members[i]
end
-- These come first: an account that may not use the next command has changed nothing by them.
local expired = call('ZRANGE', group, '-inf', integer(now), 'BYSCORE', 'LIMIT', 0, limit)
is_counted = is_counted and (not joins or new[1] or expired[1])
if is_counted then
  require_commands(group)
  if call('EXISTS', group) == 0 then -- it may have been evicted
    call('UNLINK', joined, counts)
  end
end
if expired[1] then
  if is_counted then
    uncount(joined, counts, expired)
  end
  call('ZREM', group, unpack(expired))
end
if is_counted and not joins then
  uncount(joined, counts, members)
elseif is_counted and new[1] then
  if stale[1] then
    uncount(joined, counts, stale) -- those that have expired, and were not removed now
  end
  local live = facets ~= '' and call('HGET', meta, 'build')
  if live then
    count_in(joined, counts, memberships_key(root_of(live, root, build)), new, facets, tonumber(width))
  end
end
if joins then
  call('ZADD', group, unpack(added))
else
  call('ZREM', group, unpack(members))
end
return joins and #members - belonging or belonging
