-- uses: bulk, ties
-- Members of a group that are counted by the facets they had when they joined it: 'joined', a hash, holds the names of these
-- facet rankings, joined by NUL bytes, by member; 'counts', a hash, the number of members by name.

-- Change the counts of names by these numbers. A name without members is removed.
local function change_counts(counts, changes)
  local names, set, gone = {}, {}, {}
  for name, by in pairs(changes) do
    if by ~= 0 then
      names[#names + 1] = name
    end
  end
  for i, count in ipairs(read_all('HMGET', counts, names)) do
    local sum = (tonumber(count) or 0) + changes[names[i]]
    if sum > 0 then
      set[#set + 1], set[#set + 2] = names[i], sum
    else
      gone[#gone + 1] = names[i]
    end
  end
  write_all('HSET', counts, set)
  write_all('HDEL', counts, gone)
end

-- Take members that leave, each given once, out of the counts.
local function uncount(joined, counts, members)
  local changes, gone, leaving = {}, {}, {}
  for i, names in ipairs(redis.call('HMGET', joined, unpack(members))) do
    if names then
      gone[#gone + 1] = members[i]
      leaving[names] = (leaving[names] or 0) + 1
    end
  end
  for names, count in pairs(leaving) do -- many have the same
    for name in string.gmatch(names, '%Z+') do
      changes[name] = (changes[name] or 0) - count
    end
  end
  write_all('HDEL', joined, gone)
  change_counts(counts, changes)
end

-- Count members that join, each given once, by the rankings of these facets that they are in. Names of facets are joined by
-- NUL bytes. Members that are in none are not counted.
local function count_in(joined, counts, memberships, members, facets, width)
  local is_counted, kept, changes, set = {}, {}, {}, {}
  for facet in string.gmatch(facets, '%Z+') do
    is_counted[facet] = true
  end
  -- Many members have the same values, and even more have one of them.
  local is_kept = setmetatable({}, {__index = function(known, name)
    known[name] = is_counted[string.match(name, '[^:]*')] or false
    return known[name]
  end})
  local function kept_of(names)
    local found = {count = 0}
    for name in string.gmatch(names, '%Z+') do
      if is_kept[name] then
        found[#found + 1] = name
      end
    end
    found.names = table.concat(found, '\0')
    kept[names] = found
    return found
  end
  for i, membership in ipairs(redis.call('HMGET', memberships, unpack(members))) do
    local names = membership and names_of(membership, width) or ''
    local found = kept[names] or kept_of(names)
    if found[1] then
      found.count = found.count + 1
      set[#set + 1], set[#set + 2] = members[i], found.names
    end
  end
  for _, found in pairs(kept) do
    for _, name in ipairs(found) do
      changes[name] = (changes[name] or 0) + found.count
    end
  end
  write_all('HSET', joined, set)
  change_counts(counts, changes)
end
