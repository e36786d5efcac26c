-- Reads a value, or replaces it if its version is the expected one. A value begins with its version.
-- What another program has written is a damaged value, which a reset replaces.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then value = string.find(value.err, 'WRONGTYPE', 1, true) and '' or error(value.err) end
value = value and value .. string.rep('\0', 8 - #value)
local time = redis.call('TIME')
if #ARGV > 0 and string.sub(value or '', 1, 8) == ARGV[1] then
    redis.call('PSETEX', KEYS[1], ARGV[3], ARGV[2])
    return {time[1], time[2], 1, false}
end
return {time[1], time[2], 0, value}
