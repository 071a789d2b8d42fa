-- uses: clock, logs, built, keys, ties, tests, positions, slices
-- Materialise the ranking of the members that pass several tests, or their numbers by a facet: one piece of it a call. It
-- is filled under another name, and takes its own when it is complete. From then on it follows what changes: a call
-- applies what has changed since the one before. Those of distinct values, and of a band, are made anew instead.
--
-- KEYS  intersection   what is made: sorted set, stored member -> score; or hash, name of a value's ranking -> members
--       making         hash: how far it is
--       intersections  sorted set: what was made -> until when it is read
--       live           sorted set of the whole index
--       recent         sorted set, member -> version of its newest write
--       meta           hash of the index
--       pending        hash, member -> its pending change; its log has those whose scores changed in Redis first
--       …              the sorted sets that 'tests' are about
-- ARGV  generation     that the client believes to be live
--       width          tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships    '1' where a hash holds the memberships of members
--       dense          '1' where a ranking keeps its distinct values
--       tests          what a member must pass: for each test '+' or '-' (to be, or not, in one of its sets), 'r' or
--                      'g' (rankings of stored members, or groups of primary keys) and their number, as '+r2-g1'
--       facet          name of a facet and a colon, to count members by its values; or nothing
--       low            the lowest score that belongs to it, or '-inf'
--       high           the highest one, or '+inf'
--       limit          how many members the smallest test may have
--       seconds        for which it is read as it is; one second where all changes fit into one piece
--       work           look-ups of a piece at most
--       step           the one that the last piece answered; nothing for the first
-- Returns {'made', number of members}; {'going', step} where more is to be made; {'wait'} where another client makes
--         it; the error TOOLARGE with the size of the smallest test; the errors of lib/built.lua.
-- Cost  O(work * log(size)).

local intersection, making, intersections, live, recent, meta, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local generation, width, memberships, dense, tests, facet, low, high, limit, seconds, work, step = unpack(ARGV)
local FIRST_TEST = 8
local call = redis.call
local layout = {width = tonumber(width), memberships = memberships == '1'}

local elsewhere = not_live(meta, generation)
if elsewhere then
  return elsewhere
end
local SECOND = 1000000
local now, state = clock(), {}
local fields = call('HGETALL', making)
for i = 1, #fields, 2 do
  state[fields[i]] = fields[i + 1]
end
-- Beside what is made: how its members are stored in it, where with tie bytes; or the names that they are counted by.
local function noted_key(made)
  return made .. ':noted'
end
-- A time that lies further ahead than it was set is of a clock that has been set back since.
local function till(time, most)
  return time and time - now <= most * SECOND and tonumber(time) or 0
end
local fresh = till(state.fresh, seconds)
local is_there = state.kept and call('EXISTS', intersection) == tonumber(state.kept)
  and call('EXISTS', noted_key(intersection)) == tonumber(state.noted)
if is_there and now < fresh then
  return {'made', tonumber(state.size)}
end
-- Seconds without a next piece after which another client goes on.
local LEASE = 0.25
local lease = till(state.lease, LEASE)
if step ~= (state.step or '') and now < lease then
  -- Until it is made anew, the one before will do.
  return is_there and now < fresh + seconds * SECOND and {'made', tonumber(state.size)} or {'wait'}
end

-- It is kept for longer than it is read, so that it is there for the next call, and is unlinked by the next making: a
-- key that expires may be freed on the spot.
local KEPT = 60
local part = intersection .. ':part'
local in_place = state.in_place == '1'
local base = in_place and intersection or part
local noted = noted_key(base)

-- Tests by name cost nothing more where memberships are read, so they come first.
local checks, groups = {}, {}
for _, check in ipairs(parse_tests(tests, KEYS, FIRST_TEST)) do
  if check.is_group then
    checks[#checks + 1] = check
    for _, group in ipairs(check.keys) do
      groups[#groups + 1] = group
    end
  else
    table.insert(checks, 1, check)
  end
end
local MOST_GROUPS = 100
local is_followed = (dense ~= '1' or facet ~= '') and low == '-inf' and high == '+inf' and #groups <= MOST_GROUPS
groups = is_followed and groups or {}
local sources = {recent, log_of(pending)}
for i, group in ipairs(groups) do
  sources[i + 2] = log_of(group)
end
-- A cursor in each source: the version, and the member, up to which it was read.
local function set_cursor(i, version, member)
  state['version' .. i], state['member' .. i] = version, member
end
local about = call('HMGET', meta, 'applied', 'started', 'floor', 'guarded')
local started = about[2] or ''

-- The keys that may be evicted, as '1' where one is there: what is made, and the groups.
local function present()
  local found = {call('EXISTS', base), call('EXISTS', noted)}
  for i, group in ipairs(groups) do
    found[i + 2] = call('EXISTS', group)
  end
  return table.concat(found)
end

local function size_of(check)
  local size = 0
  for _, set in ipairs(check.keys) do
    size = size + (check.is_group and call('ZCARD', set) or call('ZCOUNT', set, low, high))
  end
  return size
end

-- Read on from the end of a source; begin the log where there is none.
local function skip_to_end(i)
  if i == 1 then
    return set_cursor(i, integer((about[1] or 0) + 1), '')
  end
  local newest = newest_in_log(sources[i])
  if not newest then
    call('ZADD', sources[i], integer(now), '\0')
    newest = now
  end
  set_cursor(i, integer(newest + 1), '')
end

-- Begin with the first set of the smallest test; the error TOOLARGE where that is too large.
local function begin()
  base, noted, in_place = part, noted_key(part), false
  call('UNLINK', part, values_key(part), noted, making)
  for _, old in ipairs(call('ZRANGEBYSCORE', intersections, '-inf', integer(now), 'LIMIT', 0, 10)) do
    call('UNLINK', old, values_key(old), noted_key(old))
    call('ZREM', intersections, old)
  end
  local driver, least = 0, nil
  for i, check in ipairs(checks) do
    local size = check.wants and size_of(check)
    if size and (not least or size < least) then
      driver, least = i, size
    end
  end
  least = least or size_of({keys = {live}})
  if least > tonumber(limit) then
    return redis.error_reply(string.format('TOOLARGE %d %d', least, limit))
  end
  state = {fresh = state.fresh, size = state.size, kept = state.kept, noted = state.noted, phase = 'scan', step = 0,
    driver = driver, least = least, set = 1, score = '', member = '', started = started}
  for i = 1, #sources do
    skip_to_end(i)
  end
  call('HSET', meta, 'followed', 1)
end

-- The next members of a set, and their scores. Positions move while it is read in pieces; scores and members do not.
local function read(set, score, member, count)
  local rank, members, scores = member ~= '' and call('ZRANK', set, member), {}, {}
  if rank and call('ZSCORE', set, member) == score then
    rank = rank + 1
  else
    rank = count_lower(set, score, member, false)
  end
  local found = call('ZRANGE', set, rank, rank + count - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    members[#members + 1], scores[#scores + 1] = found[i], found[i + 1]
  end
  return members, scores
end

-- Those of some primary keys that pass all tests but 'skipped': as they are stored, their scores, and their memberships.
-- Stored members and scores are given where they were read from a ranking.
local function find_passing(members, skipped, stored, scores)
  local found
  if layout.memberships and members[1] and (facet ~= '' or not stored or look_ups_of(checks, skipped) > 1) then
    found = call('HMGET', memberships_key(live), unpack(members))
    if not stored then
      local ranked = {}
      stored = {}
      for i, member in ipairs(members) do
        if found[i] or layout.width == 0 then
          ranked[#ranked + 1] = i
          stored[i] = tie_of(found[i] or '', layout.width) .. member
        end
      end
      members, stored, found = chosen(ranked, members, stored, found)
    end
  end
  stored = stored or members
  local numbers = passing(checks, stored, layout, live, now, skipped, found)
  members, stored, scores, found = chosen(numbers, members, stored, scores or {}, found or {})
  if facet ~= '' then -- whoever has a membership is ranked
    return members, stored, scores, found
  end
  if members[1] and not scores[1] then
    scores = call('ZMSCORE', live, unpack(stored))
  end
  numbers = {}
  for i = 1, #members do
    local score = tonumber(scores[i] or nil)
    if score and score >= tonumber(low) and score <= tonumber(high) then
      numbers[#numbers + 1] = i
    end
  end
  return chosen(numbers, members, stored, scores, found)
end

local function change(command, key, words)
  if words[1] then
    call(command, key, unpack(words))
  end
end

-- Let members stand where they are stored now; those that are stored nowhere leave.
local function replace(members, stored, scores)
  local before = layout.memberships and call('EXISTS', noted) == 1 and call('HMGET', noted, unpack(members)) or {}
  local leaving, entering, forgotten, forms = {}, {}, {}, {}
  for i, member in ipairs(members) do
    local old, new = before[i] or nil, stored[i]
    if old and old ~= new then
      leaving[#leaving + 1] = old
      forgotten[#forgotten + 1] = member
    end
    if layout.width == 0 and new ~= member then -- one that has lost its tie bytes may be there in both forms
      leaving[#leaving + 1] = member
    end
    if new then
      entering[#entering + 1], entering[#entering + 2] = scores[i], new
      if new ~= member then
        forms[#forms + 1], forms[#forms + 2] = member, new
      end
    end
  end
  change('ZREM', base, leaving)
  change('HDEL', noted, forgotten)
  change('HSET', noted, forms)
  change('ZADD', base, entering)
end

-- Count members by the names of rankings, in place of those by which they were counted before; '' for none.
local function recount(members, names)
  local by, set, gone = {}, {}, {}
  local function add(text, number)
    for name in string.gmatch(text, '%Z+') do
      by[name] = (by[name] or 0) + number
    end
  end
  for i, before in ipairs(call('HMGET', noted, unpack(members))) do
    before = before or ''
    if before ~= names[i] then
      add(before, -1)
      add(names[i], 1)
      if names[i] == '' then
        gone[#gone + 1] = members[i]
      else
        set[#set + 1], set[#set + 2] = members[i], names[i]
      end
    end
  end
  for name, number in pairs(by) do
    if number ~= 0 and call('HINCRBY', base, name, number) < 1 then
      call('HDEL', base, name)
    end
  end
  change('HDEL', noted, gone)
  change('HSET', noted, set)
end

local names_of = names_reader(facet, layout)
-- Make what is made right for some members. Those that don't pass are looked for in it only if they may be there.
local function put(members, skipped, stored, scores, may_be_there)
  local passed, forms, numbers, found = find_passing(members, skipped, stored, scores)
  if facet ~= '' then
    forms = {}
    for i, membership in ipairs(found) do
      forms[i] = names_of(membership or '')
    end
  end
  local passes = #passed
  if may_be_there then
    local at = {}
    for i, member in ipairs(passed) do
      at[member] = i
    end
    for _, member in ipairs(members) do
      if not at[member] then
        passed[#passed + 1] = member
        forms[#passed] = facet ~= '' and '' or false
      end
    end
  end
  if passed[1] then
    (facet ~= '' and recount or replace)(passed, forms, numbers)
  end
  return passes
end

-- The number of members of a piece, of which so many look-ups are spent.
local function count_of(look_ups, spent)
  return math.max(1, math.min(1000, math.floor((work - (spent or 0)) / look_ups)))
end

-- Look-ups that it takes to put a member in; ties take as many again.
local PUT = facet ~= '' and 3 or layout.width > 0 and 6 or 2
local READ = 1 + (layout.memberships and 1 or 0)

-- Put in the next members of one set; return the look-ups that it took.
local function scan_set(driver, skipped, spent)
  local from = driver.is_group and integer(now) or low
  local look_ups = READ + (layout.memberships and 0 or look_ups_of(checks, skipped)) + (driver.is_group and 1 or 0)
  local count = count_of(look_ups + PUT, spent)
  local set = driver.keys[tonumber(state.set)]
  local found, scores = read(set, state.score == '' and from or state.score, state.member, count)
  local is_over = #found < count or (not driver.is_group and tonumber(scores[#scores]) > tonumber(high))
  state.score, state.member = scores[#scores], found[#found]
  local passes = 0
  if found[1] and driver.is_group then
    passes = put(found, skipped)
  elseif found[1] then
    local members = {}
    for i, stored in ipairs(found) do
      members[i] = primary_key(stored, layout)
    end
    passes = put(members, skipped, found, scores)
  end
  if is_over then
    state.set, state.score, state.member = state.set + 1, '', ''
    state.phase = driver.keys[state.set] and 'scan' or 'written'
  end
  return 3 + #found * look_ups + passes * PUT
end

-- A piece of the sets of the smallest test: of thousands of small ones, many.
local function scan()
  local skipped, spent = checks[tonumber(state.driver)], 0
  local driver = skipped or {keys = {live}}
  repeat
    spent = spent + scan_set(driver, skipped, spent)
  until state.phase ~= 'scan' or spent >= 0.9 * work
end

local FOLLOWED = look_ups_of(checks) + READ + 2 * PUT + 3
local function backlog()
  local count = 0
  for i, source in ipairs(sources) do
    count = count + call('ZCOUNT', source, state['version' .. i], '+inf')
  end
  return count
end

-- Forget the oldest of a log: whoever follows it has read them, or begins anew. Returns their number.
local function shorten(log, most)
  local till = integer(now - 2 * KEPT * SECOND)
  local old = call('ZRANGE', log, '-inf', till, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
  if #old > 2 then
    call('ZREMRANGEBYRANK', log, 0, #old / 2 - 1)
    call('ZADD', log, old[#old], '\0')
  end
  return #old / 2
end

-- Put right what has changed meanwhile: members that were written, that joined a group or left it, or whose time is
-- over. True if that is all of it. Where others change more than that, it is enough after some pieces: what is left is
-- read next.
local function follow()
  local spent, all = 0, true
  for _, group in ipairs(groups) do
    local most = count_of(FOLLOWED, spent)
    local expired = forget_expired(group, integer(now), most)
    all = all and expired < most
    spent = spent + 1 + 3 * expired
  end
  for i, source in ipairs(sources) do
    local count = count_of(FOLLOWED, spent)
    local members, versions = read(source, state['version' .. i], state['member' .. i], count)
    if members[1] then
      put(members, nil, nil, nil, true)
    end
    spent = spent + 3 + #members * FOLLOWED
    if #members == count then
      all = false
      set_cursor(i, versions[count], members[count])
    else
      skip_to_end(i)
      if i > 1 then
        spent = spent + 2 + 2 * shorten(source, count_of(2, spent))
      end
    end
  end
  state.patience = state.patience - 1
  return all or state.patience < 0
end

-- From here on the part stays as it is: number its distinct values.
local function number()
  local count = count_of(6)
  local members = call('ZRANGE', part, state.at, state.at + count - 1, 'WITHSCORES')
  local last
  for i = 1, #members, 2 do
    local value = value_of(tie_of(members[i], layout.width), members[i + 1])
    if value ~= last then
      call('ZADD', values_key(part), members[i + 1], value)
      last = value
    end
  end
  state.at = state.at + count
  return #members < 2 * count
end

-- Store how far it is, and let every key expire, whether this piece has written it or not: thousands of pieces may pass
-- until it is written again.
local function save()
  if in_place then
    state.kept, state.noted = call('EXISTS', intersection), call('EXISTS', noted)
  end
  state.present = present()
  local kept = {making, base, values_key(base), noted, intersections, unpack(sources, 2)}
  fields = {}
  for field, value in pairs(state) do
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  call('HSET', making, unpack(fields))
  for _, key in ipairs(kept) do
    call('EXPIRE', key, KEPT)
  end
end

local function finish()
  if not in_place then
    call('UNLINK', intersection, values_key(intersection), noted_key(intersection))
    local made = {[part] = intersection, [values_key(part)] = values_key(intersection)}
    made[noted] = is_followed and noted_key(intersection) or nil
    for from, to in pairs(made) do
      if call('EXISTS', from) == 1 then
        call('RENAME', from, to)
      end
    end
    call('UNLINK', noted, making)
    base, noted, in_place = intersection, noted_key(intersection), true
  end
  local is_quick = is_followed and tonumber(state.pieces) < 2
  state.size = facet == '' and call('ZCARD', intersection) or 0
  state.in_place, state.phase, state.step, state.lease = 1, is_followed and 'kept' or 'made', '', 0
  state.fresh = integer(now + (is_quick and 1 or seconds) * SECOND)
  call('ZADD', intersections, integer(now + 3 * seconds * SECOND), intersection)
  save()
  return {'made', state.size}
end

-- False where it has to begin anew.
local function goes_on()
  if not state.phase or state.phase == 'made' or state.started ~= started then
    return false
  end
  local version, evicted = tonumber(state.version1), about[4] == '1' and call('EXISTS', recent) == 0
  if version <= tonumber(evicted and about[1] or about[3] or 0) then
    return false -- versions are forgotten that it has not read, or were evicted
  end
  local before, found = state.present or '', present()
  for i = 1, #found do
    if string.sub(before, i, i) > string.sub(found, i, i) then
      return false -- it was evicted, or is a group that all have left
    end
  end
  for i = 2, #sources do
    local forgotten = call('ZSCORE', sources[i], '\0')
    if not forgotten or tonumber(state['version' .. i]) <= tonumber(forgotten) then
      return false
    end
  end
  if not in_place then
    return now < lease + seconds * SECOND
  end
  if state.phase == 'kept' and backlog() > math.max(1000, state.least) then
    return false -- to make it anew takes less
  end
  return true
end

if not goes_on() then
  local refused = begin()
  if refused then
    return refused
  end
end
if state.phase == 'kept' then
  state.phase, state.step, state.patience = 'written', 0, nil
end
if state.phase == 'scan' then
  scan()
elseif state.phase == 'numbers' then
  if number() then
    return finish()
  end
else
  state.pieces = state.patience and state.pieces + 1 or 1
  state.patience = state.patience or 2 * math.ceil(backlog() * FOLLOWED / work) + 50
  if follow() then
    if dense ~= '1' or facet ~= '' then
      return finish()
    end
    state.phase, state.at = 'numbers', 0
  end
end
state.step, state.lease = state.step + 1, integer(now + LEASE * SECOND)
save()
return {'going', state.step}
