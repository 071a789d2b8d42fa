-- uses: keys, ties
-- Members of an index: in its sorted set ('root': the live one or the shadow), in one for each of their facet rankings,
-- and in the counts of distinct values. keys.py and layout.py describe these keys.

-- The tie bytes of a membership, and the names of its facet rankings, joined by NUL bytes.
local function read_membership(membership, width)
  local length = tie_length(membership, width)
  return string.sub(membership, 1, length), string.sub(membership, length + 1)
end

-- One member fewer has this value.
local function discount(key, value)
  if redis.call('HINCRBY', counts_key(key), value, -1) < 1 then
    redis.call('HDEL', counts_key(key), value)
    redis.call('ZREM', values_key(key), value)
  end
end

-- Put a stored member into one sorted set, or change its score there; true if it was added. Counts follow what happens
-- to this very key, so that they stay right even where a membership was wrong.
local function enter(key, stored, score, tie, dense)
  local before = dense and redis.call('ZSCORE', key, stored)
  local added = redis.call('ZADD', key, score, stored) == 1
  if dense then
    local after = redis.call('ZSCORE', key, stored)
    if before ~= after then
      if before then
        discount(key, value_of(tie, before))
      end
      local value = value_of(tie, after)
      redis.call('HINCRBY', counts_key(key), value, 1)
      redis.call('ZADD', values_key(key), after, value)
    end
  end
  return added
end

-- Take a stored member out of one sorted set; true if it was there.
local function leave(key, stored, tie, dense)
  local before = dense and redis.call('ZSCORE', key, stored)
  local removed = redis.call('ZREM', key, stored) == 1
  if before then
    discount(key, value_of(tie, before))
  end
  return removed
end

-- Take a stored member out of a facet ranking, which leaves the registry with its last one; true if the ranking was
-- registered and missing: it was evicted.
local function leave_facet(root, name, stored, tie, dense)
  local key = root .. ':' .. name
  local was_there = leave(key, stored, tie, dense)
  if redis.call('EXISTS', key) == 0 then
    return redis.call('ZREM', names_key(root), name) == 1 and not was_there
  end
  return false
end

-- Register a facet ranking that a member was just put into; true if it was registered and had been missing.
local function register(root, name)
  local is_known = redis.call('ZADD', names_key(root), 0, name) == 0
  return is_known and redis.call('ZCARD', root .. ':' .. name) == 1
end

-- Put a member where its new score and membership say, and nowhere else; a score of '' removes it. True if a facet
-- ranking was found missing: it was evicted, and is made anew without those who stood there.
local function put(root, member, score, membership, width, dense)
  if score == '' then
    membership = ''
  end
  local old = redis.call('HGET', memberships_key(root), member) or ''
  local tie, names = read_membership(membership, width)
  local old_tie, old_names = read_membership(old, width)
  local stays, evicted = {}, false
  if score == '' or tie ~= old_tie then
    leave(root, old_tie .. member, old_tie, dense)
  else
    for name in string.gmatch(names, '%Z+') do
      stays[name] = true
    end
  end
  if old ~= membership then
    for name in string.gmatch(old_names, '%Z+') do
      if not stays[name] then
        evicted = leave_facet(root, name, old_tie .. member, old_tie, dense) or evicted
      end
    end
    if membership == '' then
      redis.call('HDEL', memberships_key(root), member)
    else
      redis.call('HSET', memberships_key(root), member, membership)
    end
  elseif score == '' then
    return evicted
  end
  if score ~= '' then
    enter(root, tie .. member, score, tie, dense)
    for name in string.gmatch(names, '%Z+') do
      if enter(root .. ':' .. name, tie .. member, score, tie, dense) then
        evicted = register(root, name) or evicted
      end
    end
  end
  return evicted
end
