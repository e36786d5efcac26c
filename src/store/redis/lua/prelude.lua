-- What the full path of every algorithm uses.
local ceil, max, min = math.ceil, math.max, math.min
local gmatch, match, rep = string.gmatch, string.match, string.rep

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

reply = reply or { now }
local reply_len = 0
local function push_reply(value)
    reply_len = reply_len + 1
    reply[reply_len] = value
end

-- Exact, because fmod is.
local function quotient(a, b)
    return (a - fmod(a, b)) / b
end

-- The parameters in the header of a value, or nil if it is of another algorithm, and where its
-- state begins. Returns false if there is no header.
local function parse_header(value, own_header)
    local _, last = find(value, '^~%a[%d.]*;')
    if not last then
        return false
    elseif sub(value, 2, 2) ~= sub(own_header, 2, 2) then
        return nil, last + 1
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

-- What the value of several configurations begins with, and how many it has at most.
local SEVERAL, MAX_CONFIGURATIONS = '~&', 32

-- What `read_value` found: the header of this configuration, all configurations of the key if it has
-- others, oldest first, the index of this one if it is among them, and whether it takes over the usage of
-- the newest one.
local own_header, configurations, own_index, takes_over

-- The configurations of a value, or nil if it is damaged.
local function parse_value(value)
    if sub(value, 1, 2) ~= SEVERAL then
        local header = match(value, '^~%a[%d.]*;')
        return header and { { header = header, value = value } }
    end
    local found, at = {}, 3
    while at <= #value do
        if #value < at + 15 then
            return nil
        end
        local kept_until, length = unpack('<dd', value, at)
        local part = sub(value, at + 16, at + 15 + length)
        local header = match(part, '^~%a[%d.]*;')
        if not header or #part ~= length then
            return nil
        end
        found[#found + 1] = { header = header, value = part, kept_until = kept_until }
        at = at + 16 + length
    end
    return found[1] and found
end

-- Notes that a key has no other configuration.
local function start_alone(header)
    own_header, configurations, own_index, takes_over = header, nil, nil, false
end

-- Reads the state of a key. Returns a value, where its state begins, and the parameters if they are
-- those of another configuration. Returns nil as the value if there is none to use, and an error as the
-- last result. The state takes `state_len` bytes, or `len_of(params)` bytes under other parameters, and
-- then any number of entries of `entry_len` bytes.
local function read_value(key, header, state_len, len_of, entry_len)
    start_alone(header)
    local value = try_call('GET', key)
    if type(value) == 'table' then
        return nil, nil, nil, read_error(value)
    elseif not value then
        return nil
    end
    local function has_len(value, len)
        local rest = #value - len
        return rest == 0 or entry_len and rest > 0 and fmod(rest, entry_len) == 0
    end
    if has_len(value, #header + state_len) and sub(value, 1, #header) == header then
        return value, #header + 1
    end
    configurations = parse_value(value)
    if not configurations then
        return nil, nil, nil, CORRUPT
    end
    for index = 1, #configurations do
        if configurations[index].header == header then
            own_index = index
        end
    end
    local found = configurations[own_index or #configurations]
    local params
    if not own_index then
        params = parse_header(found.header, header)
    end
    if #found.value == #found.header or not own_index and not params then
        return nil
    end
    if not has_len(found.value, #found.header + (params and len_of and len_of(params) or state_len)) then
        return nil, nil, nil, CORRUPT
    end
    takes_over = params ~= nil
    return found.value, #found.header + 1, params
end

-- Writes the value of this configuration, whose state decides like a fresh one from `unused_at` on, and
-- those of the others.
--
-- A configuration whose usage was taken over is kept as long as the one that took it: it would take it
-- over again. For the same reason one is kept, without its state, while an older one is.
local function write(key, value, unused_at)
    if not configurations then
        call('PSETEX', key, ttl_ms(unused_at), value)
        return
    end
    local first = configurations[1]
    -- It expires at least a period after it is unused.
    local left = first.kept_until and 0 or call('PTTL', key) * 1000 - EXPIRY_PERIOD + 1000
    first.kept_until = first.kept_until or now + max(left, 0)
    own_index = own_index or #configurations + 1
    configurations[own_index] = { header = own_header, value = value, kept_until = unused_at }
    local kept, packed, last_until = {}, { SEVERAL }, unused_at
    for index = max(1, #configurations - MAX_CONFIGURATIONS + 1), #configurations do
        local configuration = configurations[index]
        if takes_over then
            configuration.kept_until = max(configuration.kept_until, unused_at)
        end
        local is_unused = index ~= own_index and configuration.kept_until <= now
        if kept[1] or not is_unused then
            if is_unused then
                configuration.value = configuration.header
            end
            local kept_until = configuration.kept_until
            kept[#kept + 1] = configuration
            packed[#packed + 1] = pack('<dd', kept_until, #configuration.value) .. configuration.value
            last_until = max(last_until, kept_until)
        end
    end
    own_index, takes_over = nil, false
    for index = 1, #kept do
        if kept[index].header == own_header then
            own_index = index
        end
    end
    configurations = kept
    if #kept > 1 then
        call('PSETEX', key, ttl_ms(last_until), table.concat(packed))
        return
    end
    configurations, own_index = nil, nil
    if #value == #own_header then
        call('DEL', key)
    else
        call('PSETEX', key, ttl_ms(unused_at), value)
    end
end

-- Removes the state of this configuration.
local function remove(key)
    if configurations then
        write(key, own_header, now)
    else
        call('DEL', key)
    end
end

-- Writes a state that decides like a fresh one from `forgettable_at` on.
local function store(key, value, forgettable_at)
    if forgettable_at <= now then
        remove(key)
    else
        write(key, value, forgettable_at)
    end
end

-- Makes this configuration the newest one, after a reset: the next new one takes over nothing else.
local function make_newest(key)
    if not configurations or own_index == #configurations then
        return
    end
    local own = own_index and table.remove(configurations, own_index)
    own = own or { value = own_header, kept_until = now }
    own_index = nil
    write(key, own.value, own.kept_until)
end
