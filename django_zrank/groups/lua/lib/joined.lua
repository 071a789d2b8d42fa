-- uses: bulk, ties
-- Members of a group that are counted by the facets they had when they joined it: 'joined', a hash, holds the names of these
-- facet rankings, joined by NUL bytes, by member; 'counts', a hash, the number of members by name.

-- Change the counts of names by these numbers. A name without members is removed.
local function change_counts(counts, changes)
  for name, by in pairs(changes) do
    if redis.call('HINCRBY', counts, name, by) <= 0 then
      redis.call('HDEL', counts, name)
    end
  end
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

-- Those of the names for which 'is_kept' has true.
local function only(names, is_kept)
  local found = {}
  for name in string.gmatch(names, '%Z+') do
    if is_kept[name] then
      found[#found + 1] = name
    end
  end
  return table.concat(found, '\0')
end

-- Count members that join, each given once, by the rankings of these facets that they are in. Names of facets are joined by
-- NUL bytes. Members that are in none are not counted.
local function count_in(joined, counts, memberships, members, facets, width)
  local is_counted, having, names_by_member, kept, changes, set, last = {}, {}, {}, {}, {}, {}, 0
  for facet in string.gmatch(facets, '%Z+') do
    is_counted[facet] = true
  end
  local is_kept = setmetatable({}, {__index = function(known, name)
    known[name] = is_counted[string.match(name, '[^:]*')] or false
    return known[name]
  end})
  for i, membership in ipairs(redis.call('HMGET', memberships, unpack(members))) do
    local names = membership and names_of(membership, width) or ''
    having[names] = (having[names] or 0) + 1
    names_by_member[i] = names
  end
  for names, count in pairs(having) do -- many have the same
    local is_whole = true
    for name in string.gmatch(names, '%Z+') do
      if is_kept[name] then
        changes[name] = (changes[name] or 0) + count
      else
        is_whole = false
      end
    end
    kept[names] = is_whole and names or only(names, is_kept)
  end
  for i, names in ipairs(names_by_member) do
    if kept[names] ~= '' then
      set[last + 1], set[last + 2], last = members[i], kept[names], last + 2
    end
  end
  write_all('HSET', joined, set)
  change_counts(counts, changes)
end
