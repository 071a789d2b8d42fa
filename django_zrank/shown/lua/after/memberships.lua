-- uses: keys, ties
-- Return the reply of a script that reads members with the memberships of these, as of the same moment.
--
-- It follows the script, which is the function answer() here, and whose name is 'name'. KEYS and ARGV are that script's.
-- Returns {its reply, the stored members in it, the membership of each, or nil}
-- Cost  O(members)

local is_short = name == 'sample_nearby' -- its members are bare primary keys
local reply, found, count = answer(), {}, 0

local function add(list, first, step)
  for i = first, #list, step do
    local stored = list[i]
    if stored then -- a card that fails the tests of a draw has no member
      count = count + 1
      found[count] = stored
    end
  end
end

if name == 'read_page' then
  add(reply[6] or {}, 1, 2)
elseif name == 'read_ranks' then
  for i = 2, #reply do
    add(reply[i] or {}, 3, 2)
  end
elseif name == 'read_placements' then
  add(reply, 2, #reply + 1) -- one member
elseif name == 'count_before' then
  add(ARGV, 9, 3)
elseif name == 'sample_nearby' then
  add(reply, 9, 3)
else -- the cards of a draw have ranks if there is a method
  add(reply[5] or {}, 3, ARGV[5] == '' and 2 or 3)
  add(reply[6] or {}, 3, ARGV[5] == '' and 2 or 3)
end
if count == 0 then
  return {reply, found, found}
end
local members = found
if not is_short and (ARGV[2] ~= '0' or ARGV[3] == '1') then
  local layout = {width = tonumber(ARGV[2]), memberships = true}
  members = {}
  for i, stored in ipairs(found) do
    members[i] = primary_key(stored, layout)
  end
end
return {reply, found, redis.call('HMGET', memberships_key(KEYS[is_short and 1 or 2]), unpack(members))}
