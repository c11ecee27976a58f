-- The tip of a run: what every batch has to know, in one field of the run's hash, so that an append reads one and
-- writes one. Head; epoch, token and takeovers of the entry; base: the head when the claim was given; batch: of the
-- last record; void: whether a batch without records came after it; closed.
local TIP = '>I6I6I6I4I1I1c0I1c0'

local function read_tip(text)
  local head, epoch, base, takeovers, flags, token, batch = struct.unpack(TIP, text)
  return {
    head = head, epoch = epoch, base = base, takeovers = takeovers, void = flags % 2 == 1, closed = flags >= 2,
    token = token ~= '' and token, batch = batch
  }
end

local function pack_tip(tip)
  local token = tip.token or ''
  return struct.pack(
    TIP, tip.head, tip.epoch, tip.base, tip.takeovers, (tip.void and 1 or 0) + (tip.closed and 2 or 0),
    #token, token, #tip.batch, tip.batch
  )
end
