-- A swept run leaves a tombstone: its hash keeps until when the id stays taken, what the log hashed to,
-- and the keys; or, if the run was moved, where to, for ever, and its keys are known there.

-- KEYS: hash, stream, blobs, deltas, index. ARGV: run | closed at or before | gone until | digest of the log |
-- 1: only if it was moved
local function bury(KEYS, A)
  local H, X = KEYS[1], KEYS[5]
  local entry, run = load_entry(H), A[1]
  if not entry or not entry.closed or tonumber(entry.closed) > tonumber(A[2]) then
    return 0
  end
  local moved = redis.call('HGET', H, 'moved')
  if A[5] == '1' and not moved then
    return 0
  end
  -- An address is kept for ever.
  local gone = moved and '9e15' or A[3]
  redis.call(
    'ZREM', X, '*' .. entry.pos .. run, 'a' .. escaped(entry.agent) .. '\0' .. entry.pos .. run,
    status_member(entry, run), 'c' .. sortable(entry.closed) .. run
  )
  local fields, drop = redis.call('HKEYS', H), {}
  for _, field in ipairs(fields) do
    if field ~= 'moved' and (moved or field:sub(1, 2) ~= 'k:') then
      drop[#drop + 1] = field
    end
  end
  for i = 1, #drop, 1000 do
    redis.call('HDEL', H, unpack(drop, i, math.min(i + 999, #drop)))
  end
  redis.call('HSET', H, 'gone', gone, 'log', A[4])
  redis.call('ZADD', X, 0, 'g' .. sortable(gone) .. run)
  redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
  ring(KEYS[2])
  return 1
end

-- KEYS: hash, index. ARGV: time | the index's word for a tombstone: g, time, run
local function forget(KEYS, A)
  local _, now = clock(A[1])
  local gone = redis.call('HGET', KEYS[1], 'gone')
  if gone and tonumber(gone) > now then
    return
  end
  if gone then
    redis.call('DEL', KEYS[1])
  end
  redis.call('ZREM', KEYS[2], A[2])
end
