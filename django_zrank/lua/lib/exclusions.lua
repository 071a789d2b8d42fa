-- Members that must not be drawn.

-- A function from a primary key to true if it is excluded. 'excluded' is text: primary keys with a NUL byte before, between
-- and after them; or 'q' and then 64-bit integers, little-endian, none beyond 2^53.
local function exclusions(excluded)
  local is_packed, table_of = string.sub(excluded, 1, 1) == 'q', nil
  -- For a few look-ups, searching the text is cheaper than making a table of it.
  local searches, few = 0, is_packed and 200 or 50
  return function(who)
    local key = is_packed and tonumber(who) or who
    searches = searches + 1
    if searches == few then
      table_of = {}
      if is_packed then
        for at = 2, #excluded, 8 do
          table_of[struct.unpack('<i8', excluded, at)] = true
        end
      else
        for one in string.gmatch(excluded, '%Z+') do
          table_of[one] = true
        end
        table_of[''] = string.find(excluded, '\0\0', 1, true) and true
      end
    end
    if table_of then
      return table_of[key]
    elseif not is_packed then
      return string.find(excluded, '\0' .. who .. '\0', 1, true)
    end
    local packed, at = struct.pack('<i8', key), 1
    repeat
      at = string.find(excluded, packed, at + 1, true)
    until not at or at % 8 == 2
    return at
  end
end
