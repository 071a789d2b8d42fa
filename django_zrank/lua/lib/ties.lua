-- What a stored member, an entry and a distinct value begin with.

-- How many tie bytes a stored member, or an entry, begins with.
local function tie_length(stored, width)
  if width > 0 then
    return width
  end
  return string.byte(stored, 1) == 0 and 9 or 0
end
