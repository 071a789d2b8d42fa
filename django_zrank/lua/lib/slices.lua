-- uses: keys, ties, tests, positions
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

-- Those of some primary keys that are ranked: as they are stored, and their scores.
local function locate(live, members, layout)
  local names, stored, scores = members, {}, {}
  if layout.width > 0 and members[1] then
    names = {}
    for i, membership in ipairs(redis.call('HMGET', memberships_key(live), unpack(members))) do
      if membership then
        names[#names + 1] = string.sub(membership, 1, layout.width) .. members[i]
      end
    end
  end
  for i, score in ipairs(names[1] and redis.call('ZMSCORE', live, unpack(names)) or {}) do
    local name = names[i]
    if not score and layout.width == 0 then
      name, score = find(live, name, layout)
    end
    if score then
      stored[#stored + 1], scores[#scores + 1] = name, score
    end
  end
  return stored, scores
end

-- The numbers in the list of those of some stored members that are in one of the sets of a test.
local function found_in(test, stored, numbers, layout, live, now)
  local found, left = {}, numbers
  if is_by_name(test) then
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
local function passing(tests, stored, layout, live, now, skipped)
  local numbers = {}
  for i = 1, #stored do
    numbers[i] = i
  end
  for _, test in ipairs(tests) do
    if test ~= skipped and numbers[1] then
      local found, left = found_in(test, stored, numbers, layout, live, now), {}
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

-- The number of members by the values of a facet, by the names of these values' rankings; 'members' are stored ones and
-- their scores in turn.
local function count_values(live, members, facet, layout)
  local keys, alike, counts = {}, {}, {}
  for i = 1, #members, 2 do
    keys[#keys + 1] = primary_key(members[i], layout)
  end
  for _, membership in ipairs(keys[1] and redis.call('HMGET', memberships_key(live), unpack(keys)) or {}) do
    -- One that has just left the index may still stand in an intersection.
    local names = membership and string.sub(membership, tie_length(membership, layout.width) + 1) or ''
    alike[names] = (alike[names] or 0) + 1
  end
  for names, number in pairs(alike) do
    for name in string.gmatch(names, '%Z+') do
      if string.sub(name, 1, #facet) == facet then
        counts[name] = (counts[name] or 0) + number
      end
    end
  end
  return counts
end
