-- uses: built, clock, bulk, identity, keys, ties, beside, tests, positions, permissions
-- Do a piece of the making of a combined filter, the ranking of the members that pass several tests, or of their numbers by
-- a facet. A piece reads some members of the smallest set that holds all who pass, and puts in those that do; after the
-- last of these, it looks up again those that were written meanwhile, whom 'recent' names.
--
-- A ranking is read in its order, from the sort key of the last member on: what is added in order takes a third of the
-- time. A member that moves past that place meanwhile has been written, so 'recent' names it. It doesn't name members of
-- groups, nor those whose scores change in Redis first ('rule'): these sets are read by ZSCAN, which misses no entry that
-- is there all the time, however many move in between. A small set of stored members is cut down by Redis's own commands,
-- in one piece.
--
-- KEYS  live      sorted set of the whole index
--       meta      hash of the index
--       recent    sorted set, member -> version of its newest write
--       combined_filters  sorted set, combined_filter -> until when it is read
--       combined_filter  the one that is made: until it is complete, another key is filled
--       …         then the sorted sets that 'tests' are about
-- ARGV  build       that the client believes to be live
--       width       tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships  '1' if a hash holds the memberships of members
--       tests       that a member must pass, as in deal.lua
--       facet       the beginning of the names of a facet's rankings, to count the members in each; '' for a ranking
--       maker       the client, which keeps others from making it while it calls at least every second
--       last        '1' if another client may go on after this piece
--       page        number of members to read
--       small       number of members of a set that is cut down at once
--       limit       the most members of the smallest set
--       most        the most large combined filters of the index
--       bytes       the most memory that these may take
--       life        milliseconds for which it is kept, from the beginning of its making
--       share       the same as a multiple of the time of its making, if that is longer
-- Returns {'kept', size} when it is complete; {'more'} if another piece is needed; {'busy'} if another client makes it;
--         {'too large', number of members in the smallest set}; {'full', number of combined filters, their memory} if there is
--         no room; the errors of lib/built.lua.
-- Cost  O((page + members of one write) * (tests + log(size))), and O(log(combined filters)) for each 16 pieces.

local live, meta, recent, combined_filters, combined_filter = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local build, width, memberships, tests, facet, maker, last, page, small, limit, most, bytes, life, share =
  unpack(ARGV)
local FIRST_TEST, LEASE, RESUMED, SPARE = 6, 1000, 5000, 60000
local SMALL = 1048576 -- bytes up to which a combined filter doesn't count towards 'most': few calls make it
local call = redis.call
local layout, counts = {width = tonumber(width), memberships = memberships == '1'}, facet ~= ''
page = tonumber(page)

require_live(meta, build)
local stamp = combined_filter .. ':stamp'
local size = call('GET', stamp)
-- The keys that are read: the combined filter, and the key that its ranks are read from.
local function read_keys(key)
  return {key, not counts and keys_beside(key)[1] or nil}
end
local kept = read_keys(combined_filter)
if size and call('EXISTS', unpack(kept)) == (size ~= '0' and #kept or 0) then -- else it was evicted
  return {'kept', tonumber(size)}
end

-- The keys of a combined filter that is being made: how far this has come; the new one; how members are stored there, if they
-- have tie bytes, or the names of the rankings of those that were counted; and the keys beside it.
local function unfinished(key)
  local new = key .. ':new'
  return {new .. ':making', new, new .. ':noted', unpack(keys_beside(new))}
end
local filled, now = unfinished(combined_filter), math.floor(clock() / 1000)
local making, new, noted = filled[1], filled[2], filled[3]
local state = call('GET', making)
state = state and cmsgpack.unpack(state)
if state and state.maker ~= maker and now - state.at < LEASE then
  return {'busy'}
end
require_commands(meta)

-- Begin with the smallest set that holds all who pass; anew on another server, after an eviction, and when it is not known
-- any more who was written.
local checks = parse_tests(tests, KEYS, FIRST_TEST, live)
local applied, started, floor, guarded, rule =
  unpack(call('HMGET', meta, 'applied', 'started', 'floor', 'guarded', 'rule'))
local forgotten, is_small = tonumber(floor or 0), false
-- INFO takes long. Where cursors are those of another server, it suffices to know that when all is read.
local server = state and state.set <= state.sets and state.server or identity()
if guarded == '1' and call('EXISTS', recent) == 0 then
  forgotten = tonumber(applied)
end
if not state or state.server ~= server or state.started ~= (started or '') or state.version < forgotten
  or state.is_ordered and rule or state.keys ~= call('EXISTS', unpack(filled, 2)) then
  call('UNLINK', unpack(filled))
  state = {began = now, server = server, started = started or '', version = tonumber(applied or 0), pieces = 0, test = 0,
    set = 1, cursor = '0'}
  local least = call('ZCARD', live)
  for number, test in ipairs(checks) do
    local members = 0
    for _, key in ipairs(test.keys) do
      members = members + call('ZCARD', key)
    end
    if test.wants and members < least then
      state.test, least = number, members
    end
  end
  state.is_ordered = not rule and (state.test == 0 or checks[state.test].names ~= false)
  state.sets = state.test == 0 and 1 or #checks[state.test].keys
  if least > tonumber(limit) then
    return {'too large', least}
  end
  is_small = least <= tonumber(small) and not counts and #kept == 1
  for _, test in ipairs(checks) do
    is_small = is_small and test.names
  end
end

-- The memory of each, and by '' of all: no call measures all of them, as there may be thousands.
local sizes, large = combined_filters .. ':sizes', combined_filters .. ':large'
local function keys_of(name)
  local keys = unfinished(name)
  for _, key in ipairs(read_keys(name)) do
    keys[#keys + 1] = key
  end
  return keys
end
local function set_size(name, memory)
  call('HINCRBY', sizes, '', memory - (call('HGET', sizes, name) or 0))
  call('HSET', sizes, name, memory)
end
local function forget(name)
  call('UNLINK', unpack(keys_of(name)))
  set_size(name, 0)
  call('HDEL', sizes, name)
  call('ZREM', combined_filters, name)
  call('ZREM', large, name)
end
local function note(milliseconds)
  if call('EXISTS', combined_filters) == 0 then
    call('UNLINK', sizes, large)
  end
  local until_then = integer(now + milliseconds)
  call('ZADD', combined_filters, until_then, combined_filter)
  local memory = 0
  for _, key in ipairs(keys_of(combined_filter)) do
    memory = memory + (call('MEMORY', 'USAGE', key, 'SAMPLES', 1) or 0)
  end
  set_size(combined_filter, memory)
  if memory > SMALL then
    call('ZADD', large, until_then, combined_filter)
  else
    call('ZREM', large, combined_filter)
  end
  for _, key in ipairs({combined_filters, sizes, large}) do
    for _, condition in ipairs({'NX', 'GT'}) do
      call('PEXPIRE', key, integer(milliseconds + SPARE), condition)
    end
  end
end

-- Unlink some of those that nobody reads any more, and look if there is room.
if state.pieces % 16 == 0 then
  note(SPARE)
  for _, name in ipairs(call('ZRANGE', combined_filters, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)) do
    forget(name)
  end
  local memory = tonumber(call('HGET', sizes, ''))
  local is_one_more = call('ZSCORE', large, combined_filter) and call('ZCOUNT', large, '(' .. now, '+inf') > tonumber(most)
  if is_one_more or memory > tonumber(bytes) then
    forget(combined_filter)
    return {'full', call('ZCOUNT', combined_filters, '(' .. now, '+inf'), memory}
  end
end

-- For each member, true if it passes the tests by groups.
local function grouped(members, tested)
  local inside = {}
  for n = 1, #members do
    inside[n] = true
  end
  for _, test in ipairs(tested) do
    if not test.names then
      local found = {}
      for _, group in ipairs(test.keys) do
        for n, expiry in ipairs(read_all('ZMSCORE', group, members)) do
          found[n] = found[n] or expiry and tonumber(expiry) > 1000 * now
        end
      end
      for n = 1, #members do
        inside[n] = inside[n] and (found[n] or false) == test.wants
      end
    end
  end
  return inside
end

-- Take out what was put in of some members before, and put in those that pass, as they are stored now. 'stored' and
-- 'scores': how they are stored, if that was read. 'tested': the tests that they have not passed by where they were read.
local is_noted = call('EXISTS', noted) == 1
local function put(members, tested, stored, scores)
  local needs_names = counts or not stored
  for _, test in ipairs(tested) do
    needs_names = needs_names or test.names
  end
  local known = needs_names and layout.memberships and read_all('HMGET', memberships_key(live), members) or {}
  local before = is_noted and read_all('HMGET', noted, members) or {}
  local inside, passes, forms, found, at = grouped(members, tested), tester_by_name(tested), {}, {}, {}
  local leaving, entering, gone, set, tallies, changes = {}, {}, {}, {}, {}, {}
  for n, member in ipairs(members) do
    local tie, names = read_membership(known[n] or '', layout.width)
    known[n] = names
    if inside[n] and passes(names) then
      at[#at + 1] = n
      forms[#at], found[#at] = stored and stored[n] or tie .. member, stored and scores[n]
    end
    if before[n] then
      gone[#gone + 1] = member
      if counts then
        tallies[before[n]] = (tallies[before[n]] or 0) - 1
      else
        leaving[#leaving + 1] = before[n]
      end
    end
    if not stored and layout.width == 0 then
      leaving[#leaving + 1] = member
    end
  end
  if not stored and not counts then
    found = read_all('ZMSCORE', live, forms)
  end
  for i, form in ipairs(forms) do
    local score, member, names = found[i], members[at[i]], known[at[i]]
    if counts and names ~= '' then -- who has names is ranked
      tallies[names] = (tallies[names] or 0) + 1
      set[#set + 1], set[#set + 2] = member, names
    elseif score and not counts then
      entering[#entering + 1], entering[#entering + 2] = score, form
      if form ~= member then
        set[#set + 1], set[#set + 2] = member, form
      end
    end
  end
  write_all('HDEL', noted, gone)
  write_all('HSET', noted, set)
  for names, by in pairs(tallies) do
    for name in string.gmatch(names, '%Z+') do
      if string.sub(name, 1, #facet) == facet then
        changes[name] = (changes[name] or 0) + by
      end
    end
  end
  for name, by in pairs(changes) do
    if by ~= 0 and call('HINCRBY', new, name, by) == 0 then
      call('HDEL', new, name)
    end
  end
  if not counts then
    change_beside(new, leaving, entering, layout.width)
    write_all('ZREM', new, leaving)
    write_all('ZADD', new, entering)
  end
end

local base, others = checks[state.test], {}
for _, test in ipairs(checks) do
  if test ~= base then
    others[#others + 1] = test
  end
end
local sets, is_group = base and base.keys or {live}, base and not base.names

-- Cut down a small set. ZDIFFSTORE keeps scores as they are; those who aren't in what they must not be in, pass.
if is_small then
  local function without(into, from, keys)
    call('ZDIFFSTORE', into, #keys + 1, from, unpack(keys))
  end
  local union = {new, #sets, unpack(sets)}
  union[#union + 1], union[#union + 2] = 'AGGREGATE', 'MAX'
  call('ZUNIONSTORE', unpack(union))
  for _, test in ipairs(others) do
    if test.wants then
      without(noted, new, test.keys)
      without(new, new, {noted})
    else
      without(new, new, test.keys)
    end
  end
  call('UNLINK', noted)
  state.set = state.sets + 1
end

-- Read the next members of the smallest set, each once.
local members, stored, scores, seen, reads = {}, {}, {}, {}, 0
while sets[state.set] and 2 * #members < page and reads < 100 do -- sets may be small, and many
  local set, found, is_last = sets[state.set], nil, nil
  if state.is_ordered then
    local at, is_there = 0, 0
    if state.stored then
      at, is_there = position_of(set, state.score, state.stored, false)
    end
    found = call('ZRANGE', set, at + is_there, at + is_there + page - 1, 'WITHSCORES')
    is_last = #found < 2 * page
    state.stored, state.score = not is_last and found[#found - 1], found[#found]
  else
    state.cursor, found = unpack(call('ZSCAN', set, state.cursor, 'COUNT', math.ceil(page * 2 / 3)))
    is_last = state.cursor == '0'
  end
  reads, state.set = reads + 1, state.set + (is_last and 1 or 0)
  for i = 1, #found, 2 do
    local name, score, n = found[i], found[i + 1], #members + 1
    if not seen[name] and not (is_group and tonumber(score) <= 1000 * now) then
      seen[name] = true
      members[n], stored[n], scores[n] = is_group and name or primary_key(name, layout), name, score
    end
  end
end
local is_over = reads == 0
if is_over then -- all of the versions up to that of the last one
  local after = '(' .. integer(state.version)
  local written = call('ZRANGE', recent, after, '+inf', 'BYSCORE', 'LIMIT', math.floor(page / 2) - 1, 1, 'WITHSCORES')
  state.version, is_over = tonumber(written[2] or state.version), not written[1]
  put(call('ZRANGE', recent, after, is_over and '+inf' or state.version, 'BYSCORE'), checks)
else
  put(members, others, not is_group and stored or nil, scores)
end
if is_over then
  local size, spent = call(counts and 'HLEN' or 'ZCARD', new), now - state.began
  local left = math.max(life, share * spent) - spent
  call('UNLINK', unpack(kept))
  for n, from in ipairs(read_keys(new)) do
    if call('EXISTS', from) == 1 then
      call('RENAME', from, kept[n])
      call('PEXPIRE', kept[n], integer(left + SPARE))
    end
  end
  call('UNLINK', unpack(filled))
  call('SET', stamp, size, 'PX', integer(left))
  note(left)
  return {'kept', size}
end
for _, key in ipairs(filled) do
  call('PEXPIRE', key, SPARE)
end
state.maker, state.at, state.pieces = maker, last == '1' and 0 or now, state.pieces + 1
state.keys = call('EXISTS', unpack(filled, 2))
call('SET', making, cmsgpack.pack(state), 'PX', RESUMED)
return {'more'}
