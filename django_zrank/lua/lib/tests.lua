-- What members are tested by: to be, or not to be, in one of several sets.

-- The tests that a text such as '+r2-g1' tells of; their sets are the keys from 'first' on, in turn.
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
