-- The server's clock.

-- The time in microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- A number as text, without an exponent.
local function integer(number)
  return string.format('%.0f', number)
end
