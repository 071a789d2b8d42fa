-- uses: keys, ties
-- Tests of members: in one of several sets, or in none of them.

-- Parse tests such as '+r2-g1'; their sets are the keys from 'first' on, in order.
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

-- True if reading a membership is cheaper for a test than a look-up in each of its sets.
local function is_by_name(test)
  return not test.is_group and #test.keys > 4
end

-- A table of answers, each computed when it is first read: many members have rankings of the same names.
local function remembering(compute)
  return setmetatable({}, {__index = function(known, text)
    local answer = compute(text)
    known[text] = answer
    return answer
  end})
end

-- True if one of the names of a member's rankings, joined by NUL bytes, is that of a ranking of a test.
local function is_named(test, names, live)
  if not test.is_named then
    local wanted = {}
    for _, key in ipairs(test.keys) do
      wanted[string.sub(key, #live + 2)] = true
    end
    test.is_named = remembering(function(given)
      for name in string.gmatch(given, '%Z+') do
        if wanted[name] then
          return true
        end
      end
      return false
    end)
  end
  return test.is_named[names]
end

-- True if a stored member is in one of the sets of a test. Groups hold primary keys with their expiries.
local function is_in(test, stored, layout, live, now)
  if is_by_name(test) then
    local membership = redis.call('HGET', memberships_key(live), primary_key(stored, layout))
    return is_named(test, membership and names_of(membership, layout.width) or '', live)
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
