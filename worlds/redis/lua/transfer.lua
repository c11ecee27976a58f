-- Runs on their way from another store. While a run is being built its hash holds `building` (what it will be), its tip
-- says closed, so that workers of the version before find the door shut too, and its index members are those of
-- listings alone.

local function forget_fields(H, first, second)
  local drop = {}
  for _, field in ipairs(redis.call('HKEYS', H)) do
    local kind = field:sub(1, 2)
    if kind == first or kind == second then
      drop[#drop + 1] = field
    end
  end
  for i = 1, #drop, 1000 do
    redis.call('HDEL', H, unpack(drop, i, math.min(i + 999, #drop)))
  end
end

-- Pairs behind their count at `place`, each handed to `take`; where what follows them begins.
local function pairs_at(A, place, take)
  local last = place + 2 * tonumber(A[place])
  for i = place + 1, last, 2 do
    take(A[i], A[i + 1])
  end
  return last + 1
end

-- Whether a run is a settled copy that nobody has touched, and whose last record is among those of `build`.
local function is_untouched(H, R, A)
  local entry = load_entry(H)
  local place = 14 + 2 * (entry.head - tonumber(A[12]))
  if place < 14 or place >= 14 + 2 * tonumber(A[13]) then
    return false
  end
  local last = redis.call('XRANGE', R, entry.head .. '-0', entry.head .. '-0')[1]
  return last and batch_of(last[2][2]) == batch_of(A[place]) and last[2][4] == A[place + 1]
    and not (entry.closed or entry.token or entry.due) and entry.epoch <= tonumber(A[8])
    and (entry.status == 'blocked' or not entry.open)
end

-- KEYS: hash, stream, index, [blobs]. ARGV: time | run | agent | reader | created | status | priority | epoch |
-- takeovers | what it will be | unfinished turns, packed, or empty | seq of the first record, or 0 | count, and that many
-- records: meta, body | count of turns: name, what is kept of it | count of keys likewise | count of pieces of blobs
-- Answers 0 and the head; 1: not being built; 2 and an address or empty: gone; 3 and the head: that leaves a gap.
local function build(KEYS, A)
  local H, R, X, run = KEYS[1], KEYS[2], KEYS[3], A[2]
  local _, now = clock(A[1])
  local text, gone, moved, building = unpack(redis.call('HMGET', H, 'tip', 'gone', 'moved', 'building'))
  if gone and tonumber(gone) > now and not moved then
    return {2, ''}
  elseif text and not building and not is_untouched(H, R, A) then
    return {1}
  end
  local tip = text and read_tip(text) or {head = 0, base = 0, batch = ''}
  local seq = tonumber(A[12])
  if seq > tip.head + 1 then
    return {3, tip.head}
  end

  local place = pairs_at(A, 13, function(meta, body)
    if seq > tip.head then
      redis.call('XADD', R, seq .. '-0', 'm', meta, 'b', body)
      tip.head, tip.batch = seq, (batch_of(meta))
    end
    seq = seq + 1
  end)
  local entry
  if text then
    entry = load_entry(H)
    redis.call(
      'ZREM', X, 'a' .. escaped(entry.agent) .. '\0' .. entry.pos .. run, status_member(entry, run),
      open_member(entry, run)
    )
    forget_fields(H, 't:', 'k:')
  else
    redis.call('DEL', H) -- a tombstone whose time is over, or whose run comes back
    redis.call('ZREM', X, 'g' .. sortable(gone or 0) .. run)
    entry = {pos = new_position(X)}
  end
  tip.epoch, tip.takeovers, tip.closed = tonumber(A[8]), tonumber(A[9]), true
  entry.agent, entry.status = A[3], A[6]
  redis.call(
    'HSET', H, 'tip', pack_tip(tip), 'agent', A[3], 'reader', A[4], 'pos', entry.pos, 'status', A[6],
    'created', A[5], 'priority', A[7], 'turns', A[place], 'building', A[10]
  )
  if A[11] ~= '' then
    redis.call('HSET', H, 'open', A[11])
  else
    redis.call('HDEL', H, 'open')
  end
  redis.call(
    'ZADD', X, 0, '*' .. entry.pos .. run, 0, 'a' .. escaped(A[3]) .. '\0' .. entry.pos .. run, 0,
    status_member(entry, run)
  )
  place = pairs_at(A, place, function(turn, kept) redis.call('HSET', H, 't:' .. turn, kept) end)
  place = pairs_at(A, place, function(key, kept) redis.call('HSET', H, 'k:' .. key, kept) end)
  pairs_at(A, place, function(field, piece) redis.call('HSET', KEYS[4], field, piece) end)
  ring(R)
  return {0, tip.head}
end

-- KEYS: hash, index. ARGV: time | run | what it will be, and its head, as the caller saw them | status | due or empty |
-- closed or empty | whom to ring. Answers 1; or 0 where it stands elsewhere by now.
local function settle(KEYS, A)
  local H, X, run = KEYS[1], KEYS[2], A[2]
  local _, now = clock(A[1])
  local before = load_entry(H)
  if not before or before.head ~= tonumber(A[4]) or redis.call('HGET', H, 'building') ~= A[3] then
    return 0
  end
  local after = copy(before)
  after.status = A[5]
  if after.status == 'running' then -- by a holder that is no more, whose lease is over
    after.token, after.lease = '\0', '0'
  end
  after.due, after.closed = A[6] ~= '' and A[6], A[7] ~= '' and A[7]
  save_entry(H, before, after)
  redis.call('HSET', H, 'tip', pack_tip(after))
  redis.call('HDEL', H, 'building')
  reindex(X, run, before, after, now)
  if after.closed then
    redis.call('ZREM', X, open_member(before, run))
    redis.call('ZADD', X, 0, 'c' .. sortable(after.closed) .. run)
  else
    redis.call('ZADD', X, 0, open_member(after, run))
  end
  ring(A[8])
  if after.due or after.token then
    ring(X)
  end
  return 1
end
