-- uses: keys, ties
-- Tests of members: to be, or not to be, in one of several sets.

-- Parse the tests in a text such as '+r2-g1'; their sets are the keys from 'first' on, in turn.
local function parse_tests(text, keys, first)
  local tests = {}
  for sign, kind, count in string.gmatch(text, '([+-])([rg])(%d+)') do
    local test = {wants = sign == '+', is_group = kind == 'g', keys = {}}
    for i = first, first + count - 1 do
      test.keys[#test.keys + 1] = keys[i]
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
    if test.wants and not test.is_group and #test.keys == 1 then
      local size = redis.call('ZCARD', test.keys[1])
      if size < least then
        smallest, least = test.keys[1], size
      end
    end
  end
  return smallest
end

-- True if one membership tells more about a test than looking into each of its sets.
local function is_by_name(test)
  return not test.is_group and #test.keys > 4
end

-- True if a membership names one of the rankings of a test.
local function is_named(test, membership, live, width)
  if not test.names then
    test.names, test.verdicts = {}, {}
    for _, key in ipairs(test.keys) do
      test.names[string.sub(key, #live + 2)] = true
    end
  end
  local names = membership and string.sub(membership, tie_length(membership, width) + 1) or ''
  local verdict = test.verdicts[names] -- many have the same facets
  if verdict == nil then
    verdict = false
    for name in string.gmatch(names, '%Z+') do
      verdict = verdict or test.names[name] or false
    end
    test.verdicts[names] = verdict
  end
  return verdict
end

-- True if a stored member is in one of the sets of a test. In groups there are primary keys, up to a time.
local function is_in(test, stored, layout, live, now)
  if is_by_name(test) then
    local membership = redis.call('HGET', memberships_key(live), primary_key(stored, layout))
    return is_named(test, membership, live, layout.width)
  end
  for _, set in ipairs(test.keys) do
    local value = redis.call('ZSCORE', set, test.is_group and primary_key(stored, layout) or stored)
    if value and not (test.is_group and tonumber(value) <= now) then
      return true
    end
  end
  return false
end

-- A function from a stored member to true if it passes.
local function tester(tests, layout, live, now)
  return function(stored)
    for _, test in ipairs(tests) do
      if is_in(test, stored, layout, live, now) ~= test.wants then
        return false
      end
    end
    return true
  end
end
