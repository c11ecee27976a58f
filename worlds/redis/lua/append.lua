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
local function trace(H, R, tip, batch, prev, epoch, holds)
  local is_next = prev ~= '' and prev == tip.batch
  if is_next and not tip.void then
    return nil, true
  end
  local void, head, time = unpack(redis.call('HMGET', H, 'void', 'void_head', 'void_time'))
  head = tonumber(head or 0)
  if batch == void then
    return {1, head + 1, head, time}, true
  elseif is_next then
    return nil, true
  end
  local behind, has_prev = 0, true
  if prev ~= '' then
    behind = prev == void and head or find(R, prev, 0, nil)
    has_prev = behind ~= nil
  end
  behind = math.max(behind or 0, holds and tip.base or 0)
  local last = find(R, batch, behind, epoch)
  if last then
    return landed(R, batch, last), true
  end
  return nil, has_prev
end

-- The refusal or the duplicate; nil: write all of it. The order is that of worlds/door.py.
local function decide(H, R, A, tip, now, is_held, may_create)
  if not tip then
    local gone, moved = unpack(redis.call('HMGET', H, 'gone', 'moved'))
    if gone and tonumber(gone) > now then
      return {8, moved or ''}
    end
    return (is_held or not may_create) and {6} or nil
  end
  if tip.closed then
    local moved, building = unpack(redis.call('HMGET', H, 'moved', 'building'))
    if moved then
      return {8, moved}
    elseif building then
      return {9}
    end
  end
  if is_held then
    local epoch = tonumber(A[4])
    local holds = tip.token and tip.token == A[5] and tip.epoch == epoch
    local known, has_prev = trace(H, R, tip, A[2], A[6], epoch, holds)
    if known then
      known[5] = holds and 1 or 0
      return known
    elseif not holds then
      return {3, tip.epoch}
    elseif not has_prev then
      return {4, tip.head}
    end
  else
    local key = redis.call('HGET', H, 'k:' .. A[5])
    if key then
      local first, last, time, place = key:match('^(%d+) (%d+) (%S+) ()')
      return {key:sub(place) == A[6] and 1 or 2, tonumber(first), tonumber(last), time, 1}
    elseif tip.closed and A[7] ~= 'move' then
      return {7}
    end
  end
  if A[3] ~= '' and tonumber(A[3]) ~= tip.head then
    return {5, tip.head}
  end
  return nil
end

local function create(H, X, run, agent, reader, time)
  redis.call('DEL', H) -- a tombstone whose time is over
  local entry = {agent = agent, reader = reader, pos = new_position(X), status = 'pending'}
  -- The tip first: small hashes are searched from the front.
  redis.call(
    'HSET', H, 'tip', '', 'agent', agent, 'reader', reader, 'pos', entry.pos, 'status', 'pending', 'created', time
  )
  redis.call(
    'ZADD', X, 0, '*' .. entry.pos .. run, 0, 'a' .. escaped(agent) .. '\0' .. entry.pos .. run, 0,
    status_member(entry, run), 0, open_member(entry, run)
  )
end

-- What the change of an entry will read has to be readable: found out only then, it would leave half a batch.
local NUMBERS = {'turns', 'priority', 'due', 'lease', 'reader', 'closed'}

local function check_entry(H)
  for i, value in ipairs(redis.call('HMGET', H, unpack(NUMBERS))) do
    assert(not value or tonumber(value), 'the run is damaged: ' .. NUMBERS[i])
  end
  local pos, open = unpack(redis.call('HMGET', H, 'pos', 'open'))
  assert(pos and tonumber(pos, 16), 'the run is damaged: pos')
  for _, turn in ipairs(open and cmsgpack.unpack(open) or {}) do
    assert(type(turn) == 'table' and type(turn[1]) == 'number', 'the run is damaged: open')
  end
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
    redis.call('ZADD', X, 0, 'd' .. sortable(e.time) .. string.format('%014x', seq) .. after.pos .. run)
  elseif after.closed and not before.closed then
    redis.call('ZADD', X, 0, 'c' .. sortable(after.closed) .. run)
  end
  if event == 'move' then
    redis.call('HSET', H, 'moved', e[1])
  end
  if not after.token and after.due and visible_at(after) ~= visible_at(before) then
    ring(X)
  end
end

-- KEYS: hash, stream, [index, if the run may be created or its entry may move], [blobs, if there are any]
-- ARGV: time | batch | at head | epoch, token, previous batch; or empty, key, digest | event and three arguments, and
-- which record it is about (0: the last) | run | count, and that many records: meta, body | 1 and agent, reader, the
-- first record; or 0 | count, and that many pieces of blobs: field, bytes
local function append(KEYS, A)
  local H, R, X = KEYS[1], KEYS[2], KEYS[3]
  local time, now = clock(A[1])
  local batch, is_held, event = A[2], A[4] ~= '', A[7]
  local count = tonumber(A[13])
  local after_records = 14 + 2 * count
  local may_create = A[after_records] == '1'
  local text = redis.call('HGET', H, 'tip')
  local tip = text and read_tip(text)
  local refusal = decide(H, R, A, tip, now, is_held, may_create)
  if refusal then
    return refusal
  end

  local is_new = not tip
  local is_change = event ~= '' and event ~= 'progress' and event ~= 'drain'
  if is_change and not is_new then
    check_entry(H)
  end
  tip = tip or {head = 0, epoch = 0, base = 0, takeovers = 0}
  local first, seq = tip.head + 1, tip.head
  local stamp = string.char(#batch) .. batch .. time .. ' ' .. (is_held and A[4] or '0') .. ' '
  if is_new then
    seq = seq + 1
    redis.call('XADD', R, seq .. '-0', 'm', stamp .. A[after_records + 3], 'b', A[after_records + 4])
  end
  local base = seq
  for i = 14, after_records - 1, 2 do
    seq = seq + 1
    redis.call('XADD', R, seq .. '-0', 'm', stamp .. A[i], 'b', A[i + 1])
  end
  if is_new then
    create(H, X, A[12], A[after_records + 1], A[after_records + 2], time)
  end
  local place = after_records + (may_create and 5 or 1)
  for i = place + 1, place + 2 * tonumber(A[place]), 2 do
    redis.call('HSET', KEYS[#KEYS], A[i], A[i + 1])
  end

  if not is_held then
    redis.call('HSET', H, 'k:' .. A[5], first .. ' ' .. seq .. ' ' .. time .. ' ' .. A[6])
  elseif seq < first then
    -- The hash stands in for a record that carries the id.
    redis.call('HSET', H, 'void', batch, 'void_head', seq, 'void_time', time)
    tip.void = true
  end
  if seq >= first then
    tip.head, tip.batch, tip.void = seq, batch, false
  end
  if event == 'progress' then
    tip.takeovers = 0
  elseif event == 'drain' then
    redis.call('HSET', H, 'draining', '1')
  end
  redis.call('HSET', H, 'tip', pack_tip(tip))
  if is_change then
    local at = tonumber(A[11])
    local e = {A[8], A[9], A[10], time = time, now = now}
    apply(H, X, A[12], event, e, at > 0 and base + at or seq)
  end
  ring(R)
  return {0, first, seq, time}
end
