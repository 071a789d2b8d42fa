-- uses: clock, ties, positions, slices, made
-- The first phase of lib/progress.lua: the members of the sets of the smallest test are read, a piece a call.

-- The next members of a set after a score and a member, and the score of the last one. Positions move while it is read in
-- pieces; scores and members do not.
local function read_on(set, score, member, count)
  local rank = member ~= '' and redis.call('ZRANK', set, member)
  if rank and redis.call('ZSCORE', set, member) == score then
    rank = rank + 1
  else
    rank = count_lower(set, score, member, false)
  end
  local members = redis.call('ZRANGE', set, rank, rank + count - 1)
  return members, members[1] and redis.call('ZSCORE', set, members[#members])
end

-- Put in the next members of one set; return the look-ups that it took.
local function scan_set(made, driver, skipped, spent)
  local state, layout = made.state, made.layout
  local look_ups = cost_to_read(made) + (layout.memberships and 0 or look_ups_of(made.checks, skipped))
    + (driver.is_group and 1 or 0)
  -- As many as have passed so far will pass; if all do, it costs twice as much at most.
  local share = state.read and math.max(1 / 3, state.passed / state.read) or 1
  local count = count_of(made, look_ups + share * cost_to_put(made), spent)
  local from = state.score ~= '' and state.score or driver.is_group and integer(made.now) or made.low
  local found, last = read_on(driver.keys[tonumber(state.set)], from, state.member, count)
  local is_over = #found < count or (not driver.is_group and tonumber(last) > tonumber(made.high))
  state.score, state.member = last, found[#found]
  local passes = 0
  if found[1] and driver.is_group then
    passes = put(made, found, skipped)
  elseif found[1] then
    local members = {}
    for i, stored in ipairs(found) do
      members[i] = primary_key(stored, layout)
    end
    passes = put(made, members, skipped, found)
  end
  if is_over then
    state.set, state.score, state.member = state.set + 1, '', ''
    state.phase = driver.keys[state.set] and 'scan' or 'written'
  end
  state.read, state.passed = (state.read or 0) + #found, (state.passed or 0) + passes
  return 3 + #found * look_ups + passes * cost_to_put(made)
end

-- A piece of the sets of the smallest test: of thousands of small ones, many.
local function scan(made)
  local skipped = made.checks[tonumber(made.state.driver)]
  local driver = skipped or {keys = {made.live}}
  repeat
    made.spent = made.spent + scan_set(made, driver, skipped, made.spent)
  until made.state.phase ~= 'scan' or made.spent >= 0.9 * made.work
end
