-- What the full path of every algorithm uses.
local ceil, max, min = math.ceil, math.max, math.min
local find, gmatch, rep = string.find, string.gmatch, string.rep

local function unpack_doubles(packed)
    return { unpack('<' .. rep('d', #packed / 8), packed) }
end
-- Cursors: over ARGV, and over the numbers of the argument that is being read.
local arg_index, numbers, number_index = 1, unpack_doubles(ARGV[1]), 0
local function next_arg()
    arg_index = arg_index + 1
    return ARGV[arg_index]
end
local function next_number()
    number_index = number_index + 1
    return numbers[number_index]
end

local reply_len = 0
local function push_reply(value)
    reply_len = reply_len + 1
    reply[reply_len] = value
end

-- Exact, because fmod is.
local function quotient(a, b)
    return (a - fmod(a, b)) / b
end

-- The parameters in the header of a value of the same algorithm, and where its state begins.
-- Returns nil if the header is of another algorithm: the policy was changed and starts fresh.
-- Returns false if there is no header.
local function parse_header(value, own_header)
    local _, last = find(value, '^~%a[%d ]*\n')
    if not last then
        return false
    elseif sub(value, 2, 2) ~= sub(own_header, 2, 2) then
        return nil
    end
    local params = {}
    for param in gmatch(sub(value, 3, last), '%d+') do
        params[#params + 1] = tonumber(param)
    end
    return params, last + 1
end

-- The parts of a microsecond, for an interval of num/den nanoseconds.
local function parts_of(den)
    return 1000 * den
end

-- An error that GET or GETRANGE returned for a key. Any other error than a wrong type ends the
-- script, so that the client learns its text.
local function read_error(value)
    if find(value.err, 'WRONGTYPE', 1, true) then
        return WRONG_TYPE
    end
    return error(value.err)
end

-- Reads the value of a key, whose state takes `state_len` bytes, or `len_of(params)` bytes under
-- other parameters. Returns the value, where its state begins, and the parameters if they are not
-- those of `own_header`. Returns nil if there is no value to use, and an error as the last result.
local function read_value(key, own_header, state_len, len_of)
    local value = try_call('GET', key)
    if not value then
        return nil
    elseif type(value) == 'table' then
        return nil, nil, nil, read_error(value)
    elseif #value == #own_header + state_len and sub(value, 1, #own_header) == own_header then
        return value, #own_header + 1
    end
    local params, state_offset = parse_header(value, own_header)
    if params == nil then
        return nil
    elseif not params or #value ~= state_offset - 1 + (len_of and len_of(params) or state_len) then
        return nil, nil, nil, CORRUPT
    end
    return value, state_offset, params
end

-- Writes a state that decides like a fresh one from `forgettable_at` on.
local function store(key, value, forgettable_at)
    if forgettable_at <= now then
        call('DEL', key)
    else
        call('PSETEX', key, ttl_ms(forgettable_at), value)
    end
end
