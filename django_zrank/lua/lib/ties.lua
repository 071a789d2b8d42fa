-- Tie bytes: the prefix of stored members and memberships.

-- The number of tie bytes of a stored member or a membership.
local function tie_length(stored, width)
  if width > 0 then
    return width
  end
  return string.byte(stored, 1) == 0 and 9 or 0
end

-- The tie bytes of a stored member or a membership.
local function tie_of(stored, width)
  return string.sub(stored, 1, tie_length(stored, width))
end

-- The primary key of a stored member.
local function primary_key(stored, layout)
  if layout.width > 0 or layout.memberships then
    return string.sub(stored, tie_length(stored, layout.width) + 1)
  end
  return stored
end

-- The names of the facet rankings in a membership, joined by NUL bytes. An attachment, which begins with a bracket, comes
-- before them.
local function names_of(membership, width)
  local first = string.byte(membership)
  if width == 0 and first ~= 0 and first ~= 91 then
    return membership -- neither tie bytes nor an attachment: a third of the time
  end
  local names = string.sub(membership, tie_length(membership, width) + 1)
  if string.byte(names) == 91 then
    return string.match(names, '^%Z*%z(.*)$') or ''
  end
  return names
end

-- The tie bytes of a membership, and the names of its facet rankings.
local function read_membership(membership, width)
  return tie_of(membership, width), names_of(membership, width)
end

-- Iterate over the rankings of a member: '' for the whole index, then these names of its facet rankings.
local function rankings_of(names)
  return string.gmatch(names == '' and '\0' or '\0\0' .. names, '%z(%Z*)')
end
