-- Names carry the digest of this text: workers of two versions work side by side, each with its own functions.
local function register(name, callback)
  redis.register_function('journal_' .. name .. SUFFIX, callback)
end

register('append', append)
register('look', look_for_work)
register('take', take)
register('renew', renew)
register('publish', publish)
register('drop_deltas', drop_deltas)
register('bury', bury)
register('forget', forget)
register('beat', beat)
register('workers', workers)
register('stats', stats)
register('build', build)
register('settle', settle)
