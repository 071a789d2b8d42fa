-- uses: clock, bulk, ties
-- Changes that began in Redis and are on their way to the column: pending ones in one hash, and those that each flush
-- carried in a hash of its own. keys.py describes them.

-- The hash of what a flush carried.
local function carried_key(pending, number)
  return pending .. ':' .. integer(number)
end

-- 'sum', 'max', 'min' or 'last': what a rule does, without its column and unit.
local function operation_of(rule)
  return string.match(rule, '^%a*')
end

-- The hashes of the changes that a row lacks which was read when the database noted the flush 'flushed', oldest first; nil
-- if one of them is no longer kept. None if they were made by another rule, perhaps in another unit: their flush marks the
-- members.
local function unflushed(pending, meta, flushed, rule)
  local state = redis.call('HMGET', meta, 'taken', 'kept', 'rule')
  local taken, kept = tonumber(state[1] or flushed), tonumber(state[2] or 0)
  if flushed + 1 < kept then
    return nil
  end
  local hashes = {}
  if state[3] and state[3] ~= rule then
    return hashes
  end
  for number = flushed + 1, taken do
    hashes[#hashes + 1] = carried_key(pending, number)
  end
  hashes[#hashes + 1] = pending
  return hashes
end

-- A score after a change.
local function changed(operation, score, change)
  if operation == 'sum' then
    return score + change
  elseif operation == 'max' then
    return math.max(score, change)
  elseif operation == 'min' then
    return math.min(score, change)
  end
  return change
end

-- Apply the changes of members in each of the hashes to a table of scores as text, '' for none, at the indices 'at'.
-- Returns the number of changes.
local function apply_pending(hashes, operation, members, scores, at)
  local CHUNK, number = 3500, 0
  for _, hash in ipairs(hashes) do
    if #members > 0 and redis.call('EXISTS', hash) == 1 then
      for first = 1, #members, CHUNK do
        local found = redis.call('HMGET', hash, unpack(members, first, math.min(first + CHUNK - 1, #members)))
        for n, change in ipairs(found) do
          local i = at[first + n - 1]
          if change and scores[i] ~= '' then
            scores[i] = integer(changed(operation, tonumber(scores[i]), tonumber(change)))
            number = number + 1
          end
        end
      end
    end
  end
  return number
end

-- The changed scores of those members that are in the root, in the lists of all their rankings for change_rankings().
local function changed_everywhere(root, members, memberships, operation, changes)
  local stored, names, entering = {}, {}, {}
  for n, member in ipairs(members) do
    local tie
    tie, names[n] = read_membership(memberships[n] or '', 0)
    stored[n] = tie .. member
  end
  for n, before in ipairs(redis.call('ZMSCORE', root, unpack(stored))) do
    if before then
      local score = integer(changed(operation, tonumber(before), tonumber(changes[n])))
      for name in rankings_of(names[n]) do
        local list = list_of(entering, name)
        list[#list + 1], list[#list + 2] = score, stored[n]
      end
    end
  end
  return entering
end
