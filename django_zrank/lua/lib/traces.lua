-- uses: clock
-- The traces of writes that a drain may note in the database. A server that is rolled back lacks those of the writes that it
-- has lost, even if it is rolled back with its memory, and whatever is written afterwards. Versions don't tell: they are
-- given again. The text that 'meta' keeps of them begins with a version: the traces of up to this one have been dropped. The
-- traces follow, the newest last, each after a space: 'version.nonce'.

-- The version that a trace begins with.
local function version_of(trace)
  return tonumber(string.match(trace, '^%d+'))
end

-- The traces that follow one; nil if it is missing.
local function traces_since(traces, trace)
  if version_of(trace) <= version_of(traces) then
    return string.match(traces, ' .*') or ''
  end
  local _, last = string.find(traces .. ' ', ' ' .. trace .. ' ', 1, true)
  return last and string.sub(traces, last)
end

-- The newest trace, or the version up to which they have been dropped.
local function newest_trace(traces)
  return string.match(string.sub(traces, -40), '^.* (.+)$') or traces
end

-- Add a trace, and drop the oldest one if there are many: about 80.
local function with_trace(traces, trace)
  local BYTES = 2000
  if #traces > BYTES then
    local oldest, rest = string.match(traces, '^%S+ (%S+)(.*)$')
    traces = integer(version_of(oldest)) .. rest
  end
  return traces .. ' ' .. trace
end
