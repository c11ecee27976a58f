-- The time of a call: the server's, unless a test hands one in. Times stay text: a Lua number has no room to spare.
local function clock(at)
  if at == '' then
    local t = redis.call('TIME')
    at = t[1] .. '.' .. string.format('%06d', t[2])
  end
  return at, tonumber(at)
end

-- Microseconds as 14 hexadecimal digits: text that sorts like the time it stands for.
local function sortable(seconds)
  local micros = math.ceil(tonumber(seconds) * 1000000)
  return string.format('%014x', math.max(0, math.min(micros, 9007199254740991)))
end

local function seconds_of(digits)
  return tonumber(digits, 16) / 1000000
end

local function later(now, seconds)
  return string.format('%.17g', now + tonumber(seconds))
end

-- Tell whoever listens. Everything is written by then, so that this must not fail; who waits looks now and then anyway.
local function ring(channel)
  redis.pcall('SPUBLISH', channel, '')
end
