-- Deltas lie in a stream of their own, at (head, sub): the ids of both streams together are the offsets of readers.
-- KEYS: hash, deltas. ARGV: time | epoch | token | whom to ring | then of each: what it says of itself, its data
local function publish(KEYS, A)
  local H, D = KEYS[1], KEYS[2]
  local tip = held(H, A[2], A[3])
  if not tip then
    return 0
  end
  local time = clock(A[1])
  local sub, last = 0, redis.call('XREVRANGE', D, '+', '-', 'COUNT', 1)[1]
  if last then
    local seq, count = last[1]:match('^(%d+)-(%d+)$')
    if tonumber(seq) == tip.head then
      sub = tonumber(count)
    end
  end
  for i = 5, #A, 2 do
    sub = sub + 1
    redis.call('XADD', D, tip.head .. '-' .. sub, 'm', time .. ' ' .. A[i], 'b', A[i + 1])
  end
  redis.call('HSET', H, 'deltas', '1')
  ring(A[4])
  return 1
end

-- KEYS: hash, deltas, index. ARGV: the index's word for a turn that ended: d, time, seq, position, run
local function drop_deltas(KEYS, A)
  local D, word = KEYS[2], A[1]
  -- Of another position: the run was swept since, and its id given to another.
  if redis.call('HGET', KEYS[1], 'pos') == word:sub(30, 43) then
    redis.call('XTRIM', D, 'MINID', tonumber(word:sub(16, 29), 16) .. '-0')
    if redis.call('XLEN', D) == 0 then
      redis.call('DEL', D)
    end
  end
  redis.call('ZREM', KEYS[3], word)
end
