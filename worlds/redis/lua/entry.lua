-- A run's queue entry and its turns, kept in the run's hash. What each event makes of an entry restates
-- worlds/queue.py, and the contract suite compares. Absent fields are false; numbers outside the tip stay text.
local ENTRY = {
  'agent', 'pos', 'reader', 'priority', 'due', 'lease', 'woken', 'draining', 'status', 'open', 'closed', 'over'
}

local function load_entry(H)
  local tip = redis.call('HGET', H, 'tip')
  if not tip then
    return nil
  end
  local values, entry = redis.call('HMGET', H, unpack(ENTRY)), read_tip(tip)
  for i, name in ipairs(ENTRY) do
    entry[name] = values[i]
  end
  return entry
end

local function copy(entry)
  local twin = {}
  for name, value in pairs(entry) do
    twin[name] = value
  end
  return twin
end

local function save_entry(H, before, after)
  local set, drop, tip = {}, {}, pack_tip(after)
  if tip ~= pack_tip(before) then
    set = {'tip', tip}
  end
  for _, name in ipairs(ENTRY) do
    local value = after[name]
    if before[name] ~= value then
      if value then
        set[#set + 1] = name
        set[#set + 1] = value
      else
        drop[#drop + 1] = name
      end
    end
  end
  if #set > 0 then
    redis.call('HSET', H, unpack(set))
  end
  if #drop > 0 then
    redis.call('HDEL', H, unpack(drop))
  end
end

-- Nobody holds it any more. The epoch stays: the next claim counts on from it.
local function free(entry)
  entry.token, entry.lease, entry.woken, entry.draining = false, false, false, false
end

local EVENTS = {}

function EVENTS.submit(entry, e)
  if e.unfinished > 1 then
    return
  end
  entry.status = 'pending'
  if entry.token then
    entry.woken = '1'
  else
    entry.priority = e[2]
    entry.due = e[3] == '' and e.time or e[3]
  end
end

function EVENTS.park(entry, e)
  entry.due = e[1] ~= '' and e[1]
  entry.status, entry.takeovers = 'parked', 0
  free(entry)
end

function EVENTS.wake(entry, e)
  if entry.token then
    entry.woken = '1'
  elseif entry.status ~= 'blocked' and e.unfinished > 0 then
    -- Never later than it was: a run that is signalled often must not lose its place in the queue.
    if not entry.due or tonumber(entry.due) > e.now then
      entry.due = e.time
    end
  end
end

function EVENTS.finish(entry, e)
  entry.due = (e.unfinished > 0 or entry.woken) and e.time
  entry.status = e.unfinished > 0 and 'pending' or e[2]
  entry.takeovers = 0
  free(entry)
end

function EVENTS.block(entry)
  entry.due, entry.status = false, 'blocked'
  free(entry)
end

function EVENTS.release(entry, e)
  if e.unfinished > 0 then
    entry.due = tonumber(e[1]) == 0 and e.time or later(e.now, e[1])
    entry.status = 'pending'
  else
    entry.due = false
  end
  free(entry)
end

function EVENTS.retry(entry, e)
  entry.due, entry.takeovers, entry.status = e.time, 0, 'pending'
end

function EVENTS.close(entry, e)
  entry.closed, entry.due = e.time, false
  free(entry)
end

function EVENTS.move(entry, e)
  entry.closed, entry.due = entry.closed or e.time, false
  free(entry)
end

-- Turns. `open` holds the unfinished ones, oldest first: a retried turn goes back to its old place.
local function without(open, turn)
  local others = {}
  for _, other in ipairs(open) do
    if other[2] ~= turn then
      others[#others + 1] = other
    end
  end
  return others
end

local function with(open, turn, submitted)
  local all = without(open, turn)
  all[#all + 1] = {submitted, turn}
  table.sort(all, function(a, b) return a[1] < b[1] end)
  return all
end

local function change_turns(H, event, e, seq, open)
  if event ~= 'submit' and event ~= 'finish' and event ~= 'retry' then
    return open
  end
  local turn = e[1]
  local known = redis.call('HGET', H, 't:' .. turn)
  if event == 'submit' then
    redis.call('HSET', H, 't:' .. turn, seq)
    if not known then
      redis.call('HINCRBY', H, 'turns', 1)
    end
    return with(open, turn, seq)
  elseif not known then
    return open
  end
  local submitted = known:match('^%d+')
  if event == 'finish' then
    redis.call('HSET', H, 't:' .. turn, submitted .. ' ' .. e[2] .. ' ' .. seq)
    return without(open, turn)
  end
  redis.call('HSET', H, 't:' .. turn, submitted)
  return with(open, turn, tonumber(submitted))
end

local function opened(entry)
  return entry.open and cmsgpack.unpack(entry.open) or {}
end
