-- uses: keys, ties
-- Tests of members: in one of several rankings or groups, or in none of them.

-- Parse tests such as '+r2-g1'; their sets are the keys from 'first' on, in order. 'names' are those of rankings.
local function parse_tests(text, keys, first, live)
  local tests = {}
  for sign, kind, count in string.gmatch(text, '([+-])([rg])(%d+)') do
    local test = {wants = sign == '+', names = kind == 'r' and {}, keys = {}}
    for i = first, first + count - 1 do
      test.keys[#test.keys + 1] = keys[i]
      if test.names then
        test.names[string.sub(keys[i], #live + 2)] = true
      end
    end
    first = first + count
    tests[#tests + 1] = test
  end
  return tests
end

-- The smallest ranking that holds all members that pass.
local function smallest_ranking(tests, ranking)
  local smallest, least = ranking, redis.call('ZCARD', ranking)
  for _, test in ipairs(tests) do
    if test.wants and test.names and #test.keys == 1 then
      local size = redis.call('ZCARD', test.keys[1])
      if size < least then
        smallest, least = test.keys[1], size
      end
    end
  end
  return smallest
end

-- True if a member, whose rankings have these names, joined by NUL bytes, is in one of the rankings of a test.
local function is_named(test, names)
  for name in string.gmatch(names, '%Z+') do
    if test.names[name] then
      return true
    end
  end
  return false
end

-- True if a member is in one of the groups of a test, which hold primary keys with their expiries.
local function is_grouped(test, member, now)
  for _, group in ipairs(test.keys) do
    local expiry = redis.call('ZSCORE', group, member)
    if expiry and tonumber(expiry) > now then
      return true
    end
  end
  return false
end

-- A function from the names of a member's rankings, joined by NUL bytes, to true if it passes the tests by rankings.
local function tester_by_name(tests)
  local known = {} -- answers by names, which many members share
  return function(names)
    if known[names] == nil then
      known[names] = true
      for _, test in ipairs(tests) do
        if test.names then
          known[names] = known[names] and is_named(test, names) == test.wants
        end
      end
    end
    return known[names]
  end
end

-- A function from a stored member to true if it passes. One look-up tells in which rankings the member is, and another
-- one is needed for each group.
local function tester(tests, layout, live, now)
  local is_named_at_all, grouped, passes_by_name = false, {}, tester_by_name(tests)
  for _, test in ipairs(tests) do
    if test.names then
      is_named_at_all = true
    else
      grouped[#grouped + 1] = test
    end
  end
  return function(stored)
    local member = primary_key(stored, layout)
    for _, test in ipairs(grouped) do
      if is_grouped(test, member, now) ~= test.wants then
        return false
      end
    end
    return not is_named_at_all
      or passes_by_name(names_of(redis.call('HGET', memberships_key(live), member) or '', layout.width))
  end
end
