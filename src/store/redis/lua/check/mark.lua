-- Redis::check: marks each key. A proxy sends all of this call to the server of the first key.
for _, key in ipairs(KEYS) do
    redis.call('PSETEX', key, 10000, 'marked')
end
return 'OK'
