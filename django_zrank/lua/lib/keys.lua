-- The keys of a build: keys.py describes what they hold. 'root' is the sorted set of all members.

-- A ranking by its name; '' for all members.
local function ranking_key(root, name)
  return name == '' and root or root .. ':' .. name
end

-- The root of another build, by that of 'build'.
local function root_of(other, root, build)
  return string.sub(root, 1, -#build - 1) .. other
end

-- The hash of memberships of a build, by its root.
local function memberships_key(root)
  return root .. ':memberships'
end

-- The names of the facet rankings of a build, by its root.
local function names_key(root)
  return root .. ':rankings'
end
