-- Names carry the digest of this text: workers of two versions work side by side, each with its own functions.
local function register(name, callback, flags)
  redis.register_function({function_name = 'journal_' .. name .. SUFFIX, callback = callback, flags = flags or {}})
end

-- What makes room, and what holders need until there is some, is taken though the server's memory is full.
local ALWAYS = {'allow-oom'}

register('append', append)
register('look', look_for_work)
register('take', take)
register('renew', renew, ALWAYS)
register('publish', publish)
register('drop_deltas', drop_deltas, ALWAYS)
register('bury', bury, ALWAYS)
register('forget', forget, ALWAYS)
register('beat', beat)
register('workers', workers)
register('stats', stats)
register('build', build)
register('settle', settle)
