-- uses: tests
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

-- The groups that tests are about.
local function groups_of(tests)
  local groups = {}
  for _, test in ipairs(tests) do
    for _, group in ipairs(test.is_group and test.keys or {}) do
      groups[#groups + 1] = group
    end
  end
  return groups
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

-- A table, from the names of a member's rankings to true if they pass the tests of rankings but the one that is skipped.
local function names_tester(tests, live, skipped)
  return remembering(function(names)
    for _, test in ipairs(tests) do
      if not test.is_group and test ~= skipped and is_named(test, names, live) ~= test.wants then
        return false
      end
    end
    return true
  end)
end

-- A table, from the names of a member's rankings to those of a facet, joined by NUL bytes.
local function names_reader(facet)
  return remembering(function(names)
    local found = {}
    for name in string.gmatch(names, '%Z+') do
      if string.sub(name, 1, #facet) == facet then
        found[#found + 1] = name
      end
    end
    return table.concat(found, '\0')
  end)
end

-- The numbers of those of some members that pass a test: by their primary keys, or as they are stored in rankings.
local function passing(test, members, stored, now)
  local names, found, numbers = test.is_group and members or stored, {}, {}
  for _, set in ipairs(test.keys) do
    for i, value in ipairs(redis.call('ZMSCORE', set, unpack(names))) do
      found[i] = found[i] or value and not (test.is_group and tonumber(value) <= now)
    end
  end
  for i = 1, #names do
    if (found[i] or false) == test.wants then
      numbers[#numbers + 1] = i
    end
  end
  return numbers
end

-- Those of some lists whose numbers are given.
local function chosen(numbers, ...)
  local lists = {...}
  if #numbers == #lists[1] then
    return ...
  end
  for at, list in ipairs(lists) do
    lists[at] = {}
    for n, i in ipairs(numbers) do
      lists[at][n] = list[i]
    end
  end
  return unpack(lists)
end
