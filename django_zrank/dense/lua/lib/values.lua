-- Distinct values of a ranking, and the number of members that have each.

-- The distinct values of a ranking.
local function values_key(ranking)
  return ranking .. ':values'
end

-- The number of members that have each of them.
local function counts_key(ranking)
  return ranking .. ':counts'
end

-- A distinct value: tie bytes and the score as text, formatted here because versions of Redis print scores differently.
local function value_of(tie, score)
  return tie .. string.format('%.17g', score)
end
