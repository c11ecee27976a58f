-- Claims in two steps, since which runs a claim is about is known only after a look, and a function touches nothing
-- that it has not declared: look (what each partition has to offer), then take (one run, checked again).

local function matches(agent, first, A)
  if A[first] == '*' then
    return true
  end
  for i = first + 1, #A do
    if A[i] == agent then
      return true
    end
  end
  return false
end

-- The entries that have come due move from the waiting to the ready, where priority orders them. So many in one look:
-- the server does nothing else meanwhile.
local RIPEN = 1000

local function ripen(X, now)
  local due = redis.call('ZRANGE', X, '[w', '(w' .. sortable(now) .. '\255', 'BYLEX', 'LIMIT', 0, RIPEN)
  for _, member in ipairs(due) do
    redis.call('ZREM', X, member)
    redis.call('ZADD', X, 0, 'q' .. member:sub(16))
  end
end

local function reader_of(rank)
  return tonumber(rank:sub(37, 40), 16)
end

-- One agent's claimable entries in one partition, best first, some at a time.
local function more_of(source, count, reads, out)
  local members = redis.call('ZRANGE', source.X, source.from, '(q' .. source.agent .. '\1', 'BYLEX', 'LIMIT', 0, count)
  for _, member in ipairs(members) do
    source.last = member:sub(#source.agent + 3)
    if reader_of(source.last) <= reads then
      out[#out + 1] = source.last
    end
  end
  if #members < count then
    source.is_over = true
  else
    source.from = '(' .. members[count]
  end
end

local function source_of(X, agent)
  return {X = X, agent = agent, from = '[q' .. agent .. '\0'}
end

local function next_agent(X, agent)
  local from = agent and '[q' .. agent .. '\1' or '[q'
  local member = redis.call('ZRANGE', X, from, '(r', 'BYLEX', 'LIMIT', 0, 1)[1]
  return member and member:sub(2):match('^%Z*')
end

-- The best of all sources. A few of each at first; more only of those that may hold better ones than the last wanted.
local function best(sources, limit, reads, count)
  local out = {}
  for _, source in ipairs(sources) do
    more_of(source, count, reads, out)
  end
  while true do
    table.sort(out)
    local has_grown, last = false, out[limit]
    for _, source in ipairs(sources) do
      if not source.is_over and (not last or source.last < last) then
        more_of(source, limit, reads, out)
        has_grown = true
      end
    end
    if not has_grown then
      break
    end
  end
  for i = #out, limit + 1, -1 do
    out[i] = nil
  end
  return out
end

-- How far ahead the waiting are looked through for one of these agents. Behind so many others the answer is a guess,
-- and too early, but not so early that a worker does nothing but ask.
local AHEAD, GUESS_SECONDS = 16, 0.1

local function soonest(X, reads, wanted, now)
  local from, last = '[w', nil
  for _, count in ipairs({2, AHEAD}) do
    local waiting = redis.call('ZRANGE', X, from, '(x', 'BYLEX', 'LIMIT', 0, count)
    for _, member in ipairs(waiting) do
      last = member
      local agent = member:sub(16):match('^%Z*')
      if (not wanted or wanted[agent]) and reader_of(member:sub(17 + #agent)) <= reads then
        return seconds_of(member:sub(2, 15))
      end
    end
    if #waiting < count then
      return nil
    end
    from = '(' .. last
  end
  return math.max(seconds_of(last:sub(2, 15)), now + GUESS_SECONDS)
end

-- KEYS: indexes. ARGV: time | limit | reads | * or = and agents, escaped as here.
-- Answers seconds until the next entry of these falls due, or empty; then ranks of what is claimable, best first.
local function look_for_work(KEYS, A)
  local _, now = clock(A[1])
  local limit, reads, wanted = tonumber(A[2]), tonumber(A[3]), nil
  if A[4] ~= '*' then
    wanted = {}
    for i = 5, #A do
      wanted[A[i]] = true
    end
  end
  local first, sources = nil, {}
  for _, X in ipairs(KEYS) do
    ripen(X, now)
    local is_few = wanted and #A <= 6
    for i = 5, is_few and #A or 0 do
      sources[#sources + 1] = source_of(X, A[i])
    end
    local agent = not is_few and next_agent(X, nil)
    while agent do
      if not wanted or wanted[agent] then
        sources[#sources + 1] = source_of(X, agent)
      end
      agent = next_agent(X, agent)
    end
    local at = soonest(X, reads, wanted, now)
    if at and (not first or at < first) then
      first = at
    end
  end
  local out = best(sources, limit, reads, math.ceil(limit / #KEYS) + 1)
  table.insert(out, 1, first and string.format('%.17g', first - now) or '')
  return out
end

local function oldest(entry)
  local first = opened(entry)[1]
  if first then
    return 1, first[2], first[1]
  end
  return 0, '', 0
end

-- KEYS: hash, index. ARGV: time | run | token | lease seconds | reads | * or = and agents
-- Answers the claim; or in how many seconds it may be; or nothing.
local function take(KEYS, A)
  local H, X = KEYS[1], KEYS[2]
  local _, now = clock(A[1])
  local before = load_entry(H)
  if not before or before.closed then
    return {}
  end
  if not matches(before.agent, 6, A) or tonumber(before.reader) > tonumber(A[5]) then
    return {}
  end
  local after = copy(before)
  if before.token ~= A[3] then -- else this very call, repeated since its answer was lost
    local at = visible_at(before)
    if not at then
      return {}
    end
    if tonumber(at) > now then
      -- Among the ready all the same: the clock was stepped back.
      local place = rank(before, A[2])
      if redis.call('ZREM', X, 'q' .. place) == 1 then
        redis.call('ZADD', X, 0, 'w' .. sortable(at) .. place)
      end
      return {string.format('%.17g', tonumber(at) - now)}
    end
    local is_takeover = before.token
    after.over = is_takeover and '1' or '0'
    if is_takeover and not before.draining then
      after.takeovers = before.takeovers + 1
    end
    free(after)
    after.epoch, after.base = before.epoch + 1, before.head
    after.token, after.lease = A[3], later(now, A[4])
    if before.open then
      after.status = 'running'
    end
    save_entry(H, before, after)
    reindex(X, A[2], before, after, now)
  end
  local is_turn, turn, submitted = oldest(after)
  return {
    after.epoch, after.agent, is_turn, turn, submitted, after.head, after.takeovers, tonumber(after.over or 0),
    tonumber(after.reader)
  }
end

-- The tip, if the claim holds.
local function held(H, epoch, token)
  local text = redis.call('HGET', H, 'tip')
  local tip = text and read_tip(text)
  return tip and tip.token and tip.token == token and tip.epoch == tonumber(epoch) and tip
end

-- KEYS: hash, index. ARGV: time | run | epoch | token | lease seconds. Answers whether the claim held.
local function renew(KEYS, A)
  local H, X = KEYS[1], KEYS[2]
  if not held(H, A[3], A[4]) then
    return 0
  end
  local _, now = clock(A[1])
  local before = load_entry(H)
  local after = copy(before)
  after.lease = later(now, A[5])
  save_entry(H, before, after)
  reindex(X, A[2], before, after, now)
  return 1
end
