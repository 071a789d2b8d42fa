-- uses: keys, ties, tests
-- Many members at once: one command for a set, in place of one for a member.

-- The look-ups that it takes to test a member, but for the test that is skipped.
local function look_ups_of(tests, skipped)
  local count = 0
  for _, test in ipairs(tests) do
    if test ~= skipped then
      count = count + (is_by_name(test) and 2 or #test.keys)
    end
  end
  return count
end

-- Tests in the order in which they are made, and the groups that they are about. Tests by name cost nothing more where
-- memberships are read, so they come first.
local function checks_and_groups(tests)
  local checks, groups = {}, {}
  for _, test in ipairs(tests) do
    if test.is_group then
      checks[#checks + 1] = test
      for _, group in ipairs(test.keys) do
        groups[#groups + 1] = group
      end
    else
      table.insert(checks, 1, test)
    end
  end
  return checks, groups
end

-- The number of the smallest test that wants members, and how many it has with scores from 'low' to 'high'; 0 and the size
-- of the whole index where none does.
local function smallest_check(checks, live, low, high)
  local smallest, least = 0, nil
  local function size_of(check)
    local size = 0
    for _, set in ipairs(check.keys) do
      size = size + (check.is_group and redis.call('ZCARD', set) or redis.call('ZCOUNT', set, low, high))
    end
    return size
  end
  for i, check in ipairs(checks) do
    local size = check.wants and size_of(check)
    if size and (not least or size < least) then
      smallest, least = i, size
    end
  end
  return smallest, least or size_of({keys = {live}})
end

-- The numbers in the list of those of some stored members that are in one of the sets of a test; 'memberships' where they
-- have been read.
local function found_in(test, stored, numbers, layout, live, now, memberships)
  local found, left = {}, numbers
  if memberships and not test.is_group then
    for _, i in ipairs(numbers) do
      found[i] = is_named(test, memberships[i], live, layout.width)
    end
    return found
  elseif is_by_name(test) then
    local members = {}
    for n, i in ipairs(numbers) do
      members[n] = primary_key(stored[i], layout)
    end
    for n, membership in ipairs(redis.call('HMGET', memberships_key(live), unpack(members))) do
      found[numbers[n]] = is_named(test, membership, live, layout.width)
    end
    return found
  end
  for _, set in ipairs(test.keys) do
    local names, others = {}, {}
    for n, i in ipairs(left) do
      names[n] = test.is_group and primary_key(stored[i], layout) or stored[i]
    end
    for n, value in ipairs(names[1] and redis.call('ZMSCORE', set, unpack(names)) or {}) do
      if value and not (test.is_group and tonumber(value) <= now) then
        found[left[n]] = true
      else
        others[#others + 1] = left[n]
      end
    end
    left = others
  end
  return found
end

-- The numbers in the list of those of some stored members that pass all tests but the one that is skipped.
local function passing(tests, stored, layout, live, now, skipped, memberships)
  local numbers = {}
  for i = 1, #stored do
    numbers[i] = i
  end
  for _, test in ipairs(tests) do
    if test ~= skipped and numbers[1] then
      local found, left = found_in(test, stored, numbers, layout, live, now, memberships), {}
      for _, i in ipairs(numbers) do
        if (found[i] or false) == test.wants then
          left[#left + 1] = i
        end
      end
      numbers = left
    end
  end
  return numbers
end

-- The names of a facet's rankings in a membership, joined by NUL bytes, by a function that parses those that many have once.
local function names_reader(facet, layout)
  local known = {}
  return function(membership)
    local names = string.sub(membership, tie_length(membership, layout.width) + 1)
    if not known[names] then
      local found = {}
      for name in string.gmatch(names, '%Z+') do
        if string.sub(name, 1, #facet) == facet then
          found[#found + 1] = name
        end
      end
      known[names] = table.concat(found, '\0')
    end
    return known[names]
  end
end

-- Those of some stored members, and of the lists beside them, whose numbers are given.
local function chosen(numbers, ...)
  local lists = {}
  for at, list in ipairs({...}) do
    lists[at] = {}
    for n, i in ipairs(numbers) do
      lists[at][n] = list[i]
    end
  end
  return unpack(lists)
end
