-- uses: bulk, keys, ties, slices
-- Contents of an intersection: members that pass tests, in a sorted set, or their numbers by a facet, in a hash. 'made' is
-- a table: 'base', the key that is filled, and 'noted', the hash beside it; 'live', the sorted set of the index, its 'layout',
-- and 'checks', which members must pass; 'facet', or the scores 'low' to 'high' that belong to it; 'now'; 'work', look-ups
-- of a piece, and 'spent', those that it has taken so far. lib/progress.lua has the others of its fields.

-- Beside what is made: how its members are stored in it, where with tie bytes; or the names that they are counted by.
local function noted_key(key)
  return key .. ':noted'
end

-- Its contents while it is made.
local function unfinished_key(key)
  return key .. ':unfinished'
end

-- Look-ups that it takes to read a member, and to put one in; ties take as many again.
local function cost_to_read(made)
  return made.layout.memberships and 2 or 1
end

-- True if the server doubles the hash tables of a set of this size while a piece is put in, or has while the last one was:
-- Redis when they hold a power of two, Valkey seven times one. Every page of a new table is a page fault.
local function doubles(size)
  local PIECE, LARGE = 1000, 2 ^ 15
  for _, full in ipairs({LARGE, LARGE * 7 / 4}) do
    while full <= size - 2 * PIECE do
      full = 2 * full
    end
    if full <= size + PIECE then
      return true
    end
  end
  return false
end

local function cost_to_put(made)
  if not made.cost then
    local is_counted = made.facet ~= ''
    local size = is_counted and redis.call('HLEN', made.noted) or redis.call('ZCARD', made.base)
    made.cost = (is_counted and 3 or made.layout.width > 0 and 6 or 2) * (doubles(size) and 3 or 1)
  end
  return made.cost
end

-- The number of members of a piece, of which so many look-ups are spent.
local function count_of(made, look_ups, spent)
  return math.max(1, math.min(1000, math.floor((made.work - spent) / look_ups)))
end

-- Those of some primary keys that pass all tests but 'skipped'; and beside each, as it is stored, or the names that it is
-- counted by. 'stored' is given where they were read from a ranking. A call has one phase, so one test to skip.
local function find_passing(made, members, skipped, stored)
  local checks, width, is_counted = made.checks, made.layout.width, made.facet ~= ''
  local by_name = made.layout.memberships and (is_counted or not stored or look_ups_of(checks, skipped) > 1)
  if by_name and members[1] then
    made.passes = made.passes or names_tester(checks, made.live, skipped)
    local passes, passed, forms, n = made.passes, {}, {}, 0
    local memberships = redis.call('HMGET', memberships_key(made.live), unpack(members))
    for i = 1, #members do
      local membership = memberships[i] or width == 0 and ''
      if membership then -- else it is not ranked
        local length = width > 0 and width or tie_length(membership, width)
        local names = string.sub(membership, length + 1)
        if passes[names] then
          n = n + 1
          passed[n] = members[i]
          forms[n] = is_counted and made.counted_by[names] or string.sub(membership, 1, length) .. members[i]
        end
      end
    end
    members, stored = passed, forms
  end
  stored = stored or members
  for _, test in ipairs(checks) do
    if members[1] and test ~= skipped and (test.is_group or not by_name) then
      members, stored = chosen(passing(test, members, stored, made.now), members, stored)
    end
  end
  return members, stored
end

-- Those of some members whose scores belong to the intersection, and these.
local function find_scores(made, members, stored)
  local low, high, scores, numbers = tonumber(made.low), tonumber(made.high), {}, {}
  if members[1] then
    scores = redis.call('ZMSCORE', made.live, unpack(stored))
  end
  for i = 1, #members do
    local score = tonumber(scores[i] or nil)
    if score and score >= low and score <= high then
      numbers[#numbers + 1] = i
    end
  end
  return chosen(numbers, members, stored, scores)
end

-- Put members in as they are stored now, in place of what they were; those that are stored nowhere leave.
local function replace(made, members, stored, scores)
  local layout, noted = made.layout, made.noted
  local before = layout.memberships and redis.call('EXISTS', noted) == 1 and redis.call('HMGET', noted, unpack(members)) or {}
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
  write_all('ZREM', made.base, leaving)
  write_all('HDEL', noted, forgotten)
  write_all('HSET', noted, forms)
  write_all('ZADD', made.base, entering)
end

-- Count members by the names of rankings, in place of those by which they were counted before; '' for none.
local function count_by(made, members, names)
  local changes, by, set, gone = {}, {}, {}, {}
  for i, before in ipairs(redis.call('HMGET', made.noted, unpack(members))) do
    before = before or ''
    if before ~= names[i] then
      changes[before] = (changes[before] or 0) - 1
      changes[names[i]] = (changes[names[i]] or 0) + 1
      if names[i] == '' then
        gone[#gone + 1] = members[i]
      else
        set[#set + 1], set[#set + 2] = members[i], names[i]
      end
    end
  end
  for some, number in pairs(changes) do -- many have the same names
    for name in string.gmatch(some, '%Z+') do
      by[name] = (by[name] or 0) + number
    end
  end
  for name, number in pairs(by) do
    if number ~= 0 and redis.call('HINCRBY', made.base, name, number) < 1 then
      redis.call('HDEL', made.base, name)
    end
  end
  write_all('HDEL', made.noted, gone)
  write_all('HSET', made.noted, set)
end

-- Write some members to the intersection as they are now; return how many of them pass. Those that don't are removed, but
-- looked for only if they may be there.
local function put(made, members, skipped, stored, may_be_there)
  local is_counted, scores = made.facet ~= '', nil
  local passed, forms = find_passing(made, members, skipped, stored)
  if not is_counted then -- every member with a membership is ranked
    passed, forms, scores = find_scores(made, passed, forms)
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
        forms[#passed] = is_counted and '' or false
      end
    end
  end
  if passed[1] then
    (is_counted and count_by or replace)(made, passed, forms, scores)
  end
  return passes
end
