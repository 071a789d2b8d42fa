-- uses: bulk, clock, keys, tests, ties
-- The members of small groups, as a sorted set for the rest of a script.

-- Return the size of the smallest groups that hold all members that pass the tests, and their test; nil if there are none.
local function smallest_groups(tests)
  local least, smallest
  for _, test in ipairs(tests) do
    if test.wants and not test.names then
      local size = 0
      for _, group in ipairs(test.keys) do
        size = size + redis.call('ZCARD', group)
      end
      if not least or size < least then
        least, smallest = size, test
      end
    end
  end
  return least, smallest
end

-- Put the members of the groups of one test that pass all, as they are stored in 'live', into a sorted set. Return false
-- if the server takes no writes.
local function gather(into, groups, tests, layout, live, now)
  local members, seen, forms, passes = {}, {}, {}, tester_by_name(tests)
  for _, group in ipairs(groups.keys) do
    for _, member in ipairs(redis.call('ZRANGE', group, '(' .. integer(now), '+inf', 'BYSCORE')) do
      local is_in = not seen[member]
      for _, test in ipairs(tests) do
        is_in = is_in and (test == groups or test.names or is_grouped(test, member, now) == test.wants)
      end
      seen[member] = true
      members[#members + 1] = is_in and member or nil
    end
  end
  local known = layout.memberships and read_all('HMGET', memberships_key(live), members) or {}
  for n, member in ipairs(members) do
    local tie, names = read_membership(known[n] or '', layout.width)
    forms[#forms + 1] = passes(names) and tie .. member or nil
  end
  local found = {}
  for n, score in ipairs(read_all('ZMSCORE', live, forms)) do
    if score then
      found[#found + 1], found[#found + 2] = score, forms[n]
    end
  end
  redis.set_repl(redis.REPL_NONE) -- it is gone when the script ends
  redis.pcall('UNLINK', into)
  if found[1] and type(redis.pcall('ZADD', into, unpack(found))) ~= 'number' then
    return false
  end
  redis.pcall('PEXPIRE', into, 1000) -- if the script fails
  return true
end
