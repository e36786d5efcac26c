-- Reads a value, or replaces it if its version is the expected one. A value begins with its version.
local value = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
if #ARGV > 0 and string.sub(value or '', 1, 8) == ARGV[1] then
    redis.call('PSETEX', KEYS[1], ARGV[3], ARGV[2])
    return {time[1], time[2], 1, false}
end
return {time[1], time[2], 0, value}
