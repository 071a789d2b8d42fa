-- uses: keys, ties, bulk, beside
-- Members of an index, in its sorted set ('root', live or shadow) and in those of their facet rankings; keys.py and
-- layout.py describe these keys. Each key is written by one command, whatever the number of members.

-- Remove stored members from rankings ('leaving', by the ranking's name) and add others ('entering': score and stored
-- member in turn). A facet ranking is registered with its first member, and unregistered with its last. True if a registered
-- one was missing, because it was evicted.
local function change_rankings(root, leaving, entering, width)
  local names, is_known, emptied, begun, is_evicted = {}, {}, {}, {}, false
  local function each(lists, change)
    for name, list in pairs(lists) do
      change(name, ranking_key(root, name), list)
    end
  end
  local function prepare(name, key)
    if is_known[name] == nil then
      is_known[name] = false
      if name ~= '' then
        names[#names + 1] = name
      end
      is_evicted = is_evicted or is_torn(key)
      change_beside(key, leaving[name] or {}, entering[name] or {}, width)
    end
  end
  each(leaving, prepare)
  each(entering, prepare)
  for i, score in ipairs(read_all('ZMSCORE', names_key(root), names)) do
    is_known[names[i]] = score
  end
  each(leaving, function(name, key, list)
    local removed = write_all('ZREM', key, list)
    if is_known[name] and redis.call('EXISTS', key) == 0 then
      is_evicted = is_evicted or removed == 0
      is_known[name] = false
      emptied[#emptied + 1] = name
    end
  end)
  write_all('ZREM', names_key(root), emptied)
  each(entering, function(name, key, list)
    local added = write_all('ZADD', key, list)
    if is_known[name] then
      is_evicted = is_evicted or added > 0 and redis.call('ZCARD', key) == added
    elseif name ~= '' and added > 0 then
      begun[#begun + 1], begun[#begun + 2] = 0, name
    end
  end)
  write_all('ZADD', names_key(root), begun)
  return is_evicted
end

-- Move members to where their new scores and memberships say; a score of '' removes one. Without memberships, all are in
-- the root alone. True if a facet ranking was missing: it was evicted, and begins again without its former members.
local function write_members(root, members, scores, memberships, width)
  local leaving, entering, set, gone, parsed = {[''] = {}}, {[''] = {}}, {}, {}, {}
  local leaves, enters = leaving[''], entering['']
  -- Many have the same facets.
  local function facets_of(names)
    local facets = parsed[names]
    if not facets then
      facets = {list = {}, has = {}}
      for name in string.gmatch(names, '%Z+') do
        facets.list[#facets.list + 1] = name
        facets.has[name] = true
      end
      parsed[names] = facets
    end
    return facets
  end
  local function change(member, score, old, new)
    local tie, names = read_membership(new, width)
    local facets, stored = facets_of(names), tie .. member
    if old ~= new or score == '' then
      local old_tie, old_names = read_membership(old, width)
      local old_stored = old_tie .. member
      local stays = score ~= '' and old_stored == stored
      if not stays then
        leaves[#leaves + 1] = old_stored
      end
      for _, name in ipairs(facets_of(old_names).list) do
        if not (stays and facets.has[name]) then
          local list = list_of(leaving, name)
          list[#list + 1] = old_stored
        end
      end
    end
    if score ~= '' then
      enters[#enters + 1], enters[#enters + 2] = score, stored
      for _, name in ipairs(facets.list) do
        local list = list_of(entering, name)
        list[#list + 1], list[#list + 2] = score, stored
      end
    end
    if old == new then
      return
    elseif new == '' then
      gone[#gone + 1] = member
    else
      set[#set + 1], set[#set + 2] = member, new
    end
  end
  local before = memberships and read_all('HMGET', memberships_key(root), members)
  local count = 0
  for i, member in ipairs(members) do
    local score = scores[i]
    if memberships then
      change(member, score, before[i] or '', score ~= '' and memberships[i] or '')
    elseif score == '' then
      leaves[#leaves + 1] = member
    else
      enters[count + 1], enters[count + 2] = score, member
      count = count + 2
    end
  end
  local is_evicted = change_rankings(root, leaving, entering, width)
  write_all('HDEL', memberships_key(root), gone)
  write_all('HSET', memberships_key(root), set)
  return is_evicted
end
