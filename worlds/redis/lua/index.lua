-- One sorted set a partition holds everything that is looked for by order: all members have score 0, so they sort as
-- text, and a first letter tells the kinds apart. One key, and one that exists as long as the partition holds a run:
-- functions declare what they touch, and a declared key that does not exist stalls them while its slot is being moved.
--   *position run                          all runs              a agent \0 position run           by agent
--   s status \0 position agent \0 run      by status             q agent \0 rank                   claimable now
--   w visible-at agent \0 rank             claimable later       c closed-at run                   closed
--   g gone-until run                       tombstones            d finished-at seq position run    deltas to drop
--   o agent \0 standing run               open runs, to count   standing: a letter, and when due
-- rank: priority (8, inverted), due at (14), position (14), reader (4), run. Numbers are hexadecimal.

-- No NUL is left in it: that is what ends an agent's name.
local function escaped(agent)
  return (agent:gsub('\1', '\1\2'):gsub('%z', '\1\1'))
end

local function rank(entry, run)
  local priority = math.max(-2147483647, math.min(tonumber(entry.priority or 0), 2147483647))
  return escaped(entry.agent) .. '\0' .. string.format('%08x', 2147483647 - priority) .. sortable(entry.due or 0)
    .. entry.pos .. string.format('%04x', math.min(tonumber(entry.reader), 65535)) .. run
end

-- When the entry may be claimed; nil: not by itself.
local function visible_at(entry)
  if entry.closed then
    return nil
  end
  return (entry.token and entry.lease) or entry.due or nil
end

-- Where an open run stands, as worlds/queue.py says: a letter, which the due time follows where there is one.
local function standing(entry)
  if entry.closed then
    return nil
  elseif entry.token then
    return 'h'
  elseif entry.due then
    return 't' .. sortable(entry.due)
  end
  return entry.status == 'parked' and 'p' or entry.status == 'blocked' and 'b' or 'i'
end

local function open_member(entry, run)
  local at = standing(entry)
  return at and 'o' .. escaped(entry.agent) .. '\0' .. at .. run
end

local function status_member(entry, run)
  return 's' .. entry.status .. '\0' .. entry.pos .. escaped(entry.agent) .. '\0' .. run
end

-- Where the entry is after a change. It may lie among the waiting or among the ready: a look moves those that are due.
local function reindex(X, run, before, after, now)
  local old, new = visible_at(before), visible_at(after)
  local old_rank, new_rank = old and rank(before, run), new and rank(after, run)
  if old ~= new or old_rank ~= new_rank then
    if old then
      redis.call('ZREM', X, 'q' .. old_rank, 'w' .. sortable(old) .. old_rank)
    end
    if new then
      redis.call('ZADD', X, 0, (tonumber(new) <= now and 'q' or 'w' .. sortable(new)) .. new_rank)
    end
  end
  local was, is = open_member(before, run), open_member(after, run)
  if was ~= is then
    if was then
      redis.call('ZREM', X, was)
    end
    if is then
      redis.call('ZADD', X, 0, is)
    end
  end
  if before.status ~= after.status then
    redis.call('ZREM', X, status_member(before, run))
    redis.call('ZADD', X, 0, status_member(after, run))
  end
end

-- A run's place in listings: the server's microsecond, whatever clock the caller brought, and nobody else's here.
local function new_position(X)
  local t = redis.call('TIME')
  local micros = t[1] * 1000000 + t[2]
  while true do
    local pos = string.format('%014x', micros)
    if #redis.call('ZRANGE', X, '[*' .. pos, '(*' .. pos .. '\255', 'BYLEX', 'LIMIT', 0, 1) == 0 then
      return pos
    end
    micros = micros + 1
  end
end
