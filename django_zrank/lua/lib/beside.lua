-- Keys beside each ranking of an index, from which its ranks are read: none, unless a part has this library in its package.

-- The keys beside a ranking: the one that ranks are read from, then those that only writes need.
local function keys_beside(ranking)
  return {}
end

-- True if some of the keys of a ranking and beside it are missing, but not all: Redis evicted them.
local function is_torn(ranking)
  return false
end

-- Update what stands beside a ranking for stored members that are about to leave it, and for pairs of a score and a stored
-- member that are about to enter it.
local function change_beside(ranking, leaving, entering, width)
end
