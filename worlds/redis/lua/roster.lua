-- Who is at work, and where runs stand: what operators ask for.

-- A worker's word is its time and what it says. Those that are silent go when another joins, and when they are listed.
local function forget_silent(K, now, seconds)
  local all = redis.call('HGETALL', K)
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]:match('^%S+')) < now - seconds then
      redis.call('HDEL', K, all[i])
    end
  end
end

-- KEYS: roster. ARGV: time | after how many seconds the silent are forgotten | worker | what it says
local function beat(KEYS, A)
  local time, now = clock(A[1])
  if redis.call('HSET', KEYS[1], A[3], time .. ' ' .. A[4]) == 1 then
    forget_silent(KEYS[1], now, tonumber(A[2]))
  end
end

-- KEYS: roster. ARGV: time | after how many seconds the silent are forgotten. Answers the words of the others.
local function workers(KEYS, A)
  local _, now = clock(A[1])
  forget_silent(KEYS[1], now, tonumber(A[2]))
  return redis.call('HVALS', KEYS[1])
end

-- KEYS: index. ARGV: time. Answers of each agent: its name, escaped; how many are due, due later, held, parked, blocked,
-- idle; the microsecond since when the first has been due, as in the index, or empty.
local function stats(KEYS, A)
  local X, out = KEYS[1], {}
  local _, now = clock(A[1])
  local first = redis.call('ZRANGE', X, '[o', '(p', 'BYLEX', 'LIMIT', 0, 1)[1]
  while first do
    local agent = first:sub(2):match('^%Z*')
    local own = 'o' .. agent .. '\0'
    local now_on = '(' .. own .. 't' .. sortable(now) .. '\255'
    local function count(letter)
      return redis.call('ZLEXCOUNT', X, '[' .. own .. letter, '(' .. own .. letter .. '\255')
    end
    local due = redis.call('ZLEXCOUNT', X, '[' .. own .. 't', now_on)
    local oldest = due > 0 and redis.call('ZRANGE', X, '[' .. own .. 't', now_on, 'BYLEX', 'LIMIT', 0, 1)[1]
    out[#out + 1] = {
      agent, due, count('t') - due, count('h'), count('p'), count('b'), count('i'),
      oldest and oldest:sub(#own + 2, #own + 15) or ''
    }
    first = redis.call('ZRANGE', X, '[o' .. agent .. '\1', '(p', 'BYLEX', 'LIMIT', 0, 1)[1]
  end
  return out
end
