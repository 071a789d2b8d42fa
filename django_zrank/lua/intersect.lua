-- uses: clock, built, tests, slices, scan, changes, progress, server
-- Materialise the ranking of the members that pass several tests, or their numbers by a facet: one piece a call. It is
-- filled under another name, and renamed when it is complete. From then on, each call applies what has changed since the
-- last one. Rankings with distinct values, and those of a band, are made again instead.
--
-- KEYS  intersection   what is made: sorted set, stored member -> score; or hash, name of a value's ranking -> members
--       making         hash of its state
--       intersections  sorted set: what was made -> until when it is read
--       live           sorted set of the whole index
--       recent         sorted set, member -> version of its newest write
--       meta           hash of the index
--       pending        hash, member -> its pending change; its log has those whose scores changed in Redis first
--       …              the sorted sets that 'tests' are about
-- ARGV  generation     that the client believes to be live
--       width          tie bytes before every primary key; 0 none, or 9 that begin with NUL
--       memberships    '1' if a hash holds the memberships of members
--       dense          '1' if a ranking keeps its distinct values
--       tests          what a member must pass: for each test '+' or '-' (to be, or not, in one of its sets), 'r' or
--                      'g' (rankings of stored members, or groups of primary keys) and their number, as '+r2-g1'
--       facet          name of a facet and a colon, to count members by its values; or nothing
--       low            the lowest score that belongs to it, or '-inf'
--       high           the highest one, or '+inf'
--       limit          how many members the smallest test may have
--       most           how many intersections of the index may be kept or made at a time
--       bytes          how much memory these may take, about
--       seconds        for which it is read as it is; one second where all changes fit into one piece
--       work           look-ups of a piece at most
--       step           the one that the last piece answered; nothing for the first
-- Returns {'made', number of members}; {'going', step, look-ups, microseconds of the processor that these took} if more
--         is to be made; {'wait'} if another client makes it; the error TOOLARGE with the size of the smallest test;
--         the error TOOMANY with their number and bytes; the errors of lib/built.lua.
-- Cost  O(work * log(size)).

local intersection, making, intersections, live, recent, meta, pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local generation, width, memberships, dense, tests, facet, low, high, limit, most, bytes, seconds, work, step = unpack(ARGV)
local FIRST_TEST, SECOND = 8, 1000000
-- Seconds without a next piece after which another client goes on.
local LEASE = 0.25
local call = redis.call

-- A time that lies further ahead than it was set is of a clock that has been set back since.
local time = call('TIME')
local now = time[1] * SECOND + time[2]
local function till(moment, most)
  return moment and moment - now <= most * SECOND and tonumber(moment) or 0
end
local fresh, lease, at, size, kept, noted =
  unpack(call('HMGET', making, 'fresh', 'lease', 'step', 'size', 'kept', 'noted'))
fresh, lease = till(fresh, seconds), till(lease, LEASE)
local is_there = kept and call('EXISTS', intersection) == tonumber(kept)
  and call('EXISTS', intersection .. ':noted') == tonumber(noted)
-- Most calls find it made, and fresh: they end before libraries are defined, such as noted_key().
if is_there and now < fresh and call('HGET', meta, 'generation') == generation then
  return {'made', tonumber(size)}
end

-- Libraries come here.

local began = used()
require_live(meta, generation)
if step ~= (at or '') and now < lease then
  -- Until it is made again, the previous one is read.
  return is_there and now < fresh + seconds * SECOND and {'made', tonumber(size)} or {'wait'}
end

local layout = {width = tonumber(width), memberships = memberships == '1'}
local made = {
  key = intersection, making = making, registry = intersections, live = live, layout = layout, now = now, lease = lease,
  facet = facet, counted_by = names_reader(facet), low = low, high = high, is_numbered = dense == '1' and facet == '',
  limit = tonumber(limit), most = tonumber(most), bytes = tonumber(bytes), seconds = tonumber(seconds), work = tonumber(work), spent = 0,
}
made.checks = parse_tests(tests, KEYS, FIRST_TEST)
made.groups = groups_of(made.checks)
resume(made, meta, recent, pending)
if not goes_on(made) then
  local refused = begin(made, meta)
  if refused then
    return refused
  end
end
local state, is_complete = made.state, false
if state.phase == 'kept' then
  state.phase, state.step, state.patience = 'written', 0, nil
end
local bytes_of_all = state.step % 16 == 15 and memory_of_made(made) or 0
if bytes_of_all > made.bytes then -- others have grown meanwhile
  call('UNLINK', making)
  unlink_made(made.unfinished)
  call('ZREM', intersections, intersection)
  return too_many(made, bytes_of_all)
end
if state.phase == 'scan' then
  scan(made)
elseif state.phase == 'numbers' then
  is_complete = number_values(made)
elseif follow(made) then
  is_complete = not made.is_numbered
  state.phase, state.at = 'numbers', 0
end
if is_complete then
  finish(made)
  return {'made', state.size}
end
state.step, state.lease = state.step + 1, integer(now + LEASE * SECOND)
save(made)
return {'going', state.step, made.spent, used() - began}
