-- The door. A function is not rolled back: whatever can be refused is refused before the first write, and of the
-- writes the first XADD comes first, since it alone could still fail (where a log is longer than its hash says).

-- A record is two fields: m (length and bytes of the batch id, time, epoch, what the writer knows) and b (its body).
local function batch_of(meta)
  local length = meta:byte(1)
  return meta:sub(2, 1 + length), 2 + length
end

-- The newest record of that batch behind a seq. Records of a claim lie behind those of earlier epochs.
local function find(R, batch, behind, epoch)
  local newest, count = '+', 16
  while true do
    local rows = redis.call('XREVRANGE', R, newest, '(' .. behind .. '-0', 'COUNT', count)
    for _, row in ipairs(rows) do
      local found, place = batch_of(row[2][2])
      if found == batch then
        return tonumber(row[1]:match('^%d+'))
      end
      local wrote = tonumber(row[2][2]:match('^%S+ (%d+) ', place))
      if epoch and wrote > 0 and wrote < epoch then
        return nil
      end
    end
    if #rows < count then
      return nil
    end
    newest, count = '(' .. rows[#rows][1], 128
  end
end

local function landed(R, batch, last)
  local first, time = last, nil
  while first >= 1 do
    local row = redis.call('XRANGE', R, first .. '-0', first .. '-0')[1]
    local found, place = '', 1
    if row then
      found, place = batch_of(row[2][2])
    end
    if found ~= batch then
      break
    end
    time = row[2][2]:match('^%S+', place)
    first = first - 1
  end
  return {1, first + 1, last, time}
end

-- Where the holder's batch is, if it has landed, and whether the one before it has. A batch lands behind its
-- predecessor: with that at the very end of the log, it has not. That is all but always so; the scans are for what
-- others appended meanwhile, and for answers that were lost.
local function trace(R, seen, batch, prev, epoch, holds)
  if batch == seen.void then
    return {1, seen.void_head + 1, seen.void_head, seen.void_time}, true
  end
  if prev ~= '' and prev == seen.batch then
    return nil, true
  end
  local behind, has_prev = 0, true
  if prev ~= '' then
    behind = prev == seen.void and seen.void_head or find(R, prev, 0, nil)
    has_prev = behind ~= nil
  end
  behind = math.max(behind or 0, holds and seen.base or 0)
  local last = find(R, batch, behind, epoch)
  if last then
    return landed(R, batch, last), true
  end
  return nil, has_prev
end

local function look(H, key)
  local s = redis.call(
    'HMGET', H, 'head', 'batch', 'epoch', 'token', 'takeovers', 'closed', 'gone', 'void', 'void_head', 'void_time',
    'base', key
  )
  return {
    head = s[1] and tonumber(s[1]), batch = s[2], epoch = s[3] or '0', token = s[4], takeovers = s[5], closed = s[6],
    gone = s[7], void = s[8], void_head = tonumber(s[9] or 0), void_time = s[10], base = tonumber(s[11] or 0),
    key = s[12]
  }
end

-- The refusal or the duplicate; nil: write all of it. The order is that of worlds/door.py.
local function decide(R, A, seen, now, is_held, may_create)
  if seen.gone and tonumber(seen.gone) > now then
    return {8}
  end
  if not seen.head then
    return (is_held or not may_create) and {6} or nil
  end
  if is_held then
    local holds = seen.token and seen.token == A[5] and seen.epoch == A[4]
    local known, has_prev = trace(R, seen, A[2], A[6], tonumber(A[4]), holds)
    if known then
      known[5] = holds and 1 or 0
      return known
    elseif not holds then
      return {3, tonumber(seen.epoch)}
    elseif not has_prev then
      return {4, seen.head}
    end
  elseif seen.key then
    local first, last, time, place = seen.key:match('^(%d+) (%d+) (%S+) ()')
    local is_same = seen.key:sub(place) == A[6]
    return {is_same and 1 or 2, tonumber(first), tonumber(last), time, 1}
  elseif seen.closed then
    return {7}
  end
  if A[3] ~= '' and tonumber(A[3]) ~= seen.head then
    return {5, seen.head}
  end
  return nil
end

local function create(H, X, run, agent, reader, time)
  redis.call('DEL', H) -- a tombstone whose time is over
  local entry = {agent = agent, reader = reader, pos = new_position(X), status = 'pending'}
  redis.call('HSET', H, 'agent', agent, 'reader', reader, 'pos', entry.pos, 'status', 'pending', 'created', time)
  redis.call(
    'ZADD', X, 0, '*' .. entry.pos .. run, 0, 'a' .. escaped(agent) .. '\0' .. entry.pos .. run, 0,
    status_member(entry, run)
  )
end

local function apply(H, X, run, event, e, seq)
  local before = load_entry(H)
  local after = copy(before)
  local open = change_turns(H, event, e, seq, opened(before))
  e.unfinished = #open
  after.open = #open > 0 and cmsgpack.pack(open)
  EVENTS[event](after, e)
  save_entry(H, before, after)
  reindex(X, run, before, after, e.now)
  if event == 'finish' and redis.call('HDEL', H, 'deltas') == 1 then
    redis.call('ZADD', X, 0, 'd' .. sortable(e.time) .. string.format('%014x', seq) .. run)
  elseif event == 'close' then
    redis.call('ZADD', X, 0, 'c' .. sortable(e.time) .. run)
  end
  if not after.token and after.due and visible_at(after) ~= visible_at(before) then
    redis.call('PUBLISH', X:match('^{(.*):p%d+}') .. ':work', '')
  end
end

-- KEYS: hash, stream, [index, if the run may be created or its entry may move], [blobs, if there are any]
-- ARGV: time | batch | at head | epoch, token, previous batch; or empty, key, digest | event and three arguments, and
-- which record it is about | count, and that many records | 1 and run, agent, reader, record; or 0 | count, blobs
local function append(KEYS, A)
  local H, R, X = KEYS[1], KEYS[2], KEYS[3]
  local time, now = clock(A[1])
  local batch, is_held, event = A[2], A[4] ~= '', A[7]
  local count = tonumber(A[13])
  local after_records = 14 + 2 * count
  local may_create = A[after_records] == '1'
  local seen = look(H, is_held and 'head' or 'k:' .. A[5])
  local refusal = decide(R, A, seen, now, is_held, may_create)
  if refusal then
    return refusal
  end

  local head, epoch = seen.head or 0, is_held and A[4] or '0'
  local first, seq = head + 1, head
  local stamp = string.char(#batch) .. batch .. time .. ' ' .. epoch .. ' '
  if not seen.head then
    seq = seq + 1
    redis.call('XADD', R, seq .. '-0', 'm', stamp .. A[after_records + 3], 'b', A[after_records + 4])
  end
  local base = seq
  for i = 14, after_records - 1, 2 do
    seq = seq + 1
    redis.call('XADD', R, seq .. '-0', 'm', stamp .. A[i], 'b', A[i + 1])
  end
  if not seen.head then
    create(H, X, A[12], A[after_records + 1], A[after_records + 2], time)
  end
  local place = after_records + (may_create and 5 or 1)
  for i = place + 1, place + 2 * tonumber(A[place]), 2 do
    redis.call('HSET', KEYS[#KEYS], A[i], A[i + 1])
  end

  if not is_held then
    redis.call('HSET', H, 'k:' .. A[5], first .. ' ' .. seq .. ' ' .. time .. ' ' .. A[6], 'head', seq)
  elseif seq == head then
    -- The hash stands in for a record that carries the id.
    redis.call('HSET', H, 'void', batch, 'void_head', head, 'void_time', time)
  end
  if seq > head then
    redis.call('HSET', H, 'head', seq, 'batch', batch)
  end

  if event == 'progress' then
    if seen.takeovers and seen.takeovers ~= '0' then
      redis.call('HSET', H, 'takeovers', '0')
    end
  elseif event == 'drain' then
    redis.call('HSET', H, 'draining', '1')
  elseif event ~= '' then
    local at = tonumber(A[11])
    local e = {A[8], A[9], A[10], time = time, now = now}
    apply(H, X, A[12], event, e, at > 0 and base + at or seq)
  end
  redis.call('PUBLISH', R, '')
  return {0, first, seq, time}
end
