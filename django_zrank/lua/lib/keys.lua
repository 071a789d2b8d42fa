-- The keys beside a ranking: keys.py describes what they hold.

-- The hash of memberships of a generation, by its root.
local function memberships_key(root)
  return root .. ':memberships'
end

-- The names of the facet rankings of a generation, by its root.
local function names_key(root)
  return root .. ':rankings'
end

-- The distinct values of a ranking, and how many members have each.
local function values_key(ranking)
  return ranking .. ':values'
end

local function counts_key(ranking)
  return ranking .. ':counts'
end
