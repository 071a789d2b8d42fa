-- Begin a sweep, and return how far others got.
--
-- If rows were read as of an earlier time than that up to which there were marks, the clock was set back, and these marks may
-- have been processed too early: what left since is to be marked again.
--
-- KEYS  meta   hash of the index
-- ARGV  nonce  random text that names the sweep
-- Returns {build, term, time up to which members have marks, latest time as of which rows were read}, '' for what is
--         not noted. Times are in microseconds of the database's clock.
-- Cost  O(1).

local meta = KEYS[1]
local nonce = unpack(ARGV)

local build, term, swept, first, last =
  unpack(redis.call('HMGET', meta, 'build', 'term', 'swept', 'first_read', 'last_read'))
if build then
  if swept and first and tonumber(first) < tonumber(swept) then
    swept = first
    redis.call('HSET', meta, 'swept', swept)
  end
  redis.call('HSET', meta, 'sweep', nonce)
  redis.call('HDEL', meta, 'first_read')
end
return {build or '', term or '', swept or '', last or ''}
