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

-- The value of a key that has none, while states that were moved away from it may be left.
local NO_STATE = '~;'

-- The key that the value was moved away from, if it is at a name of its own.
local moved_from
-- The key at which a value of another configuration was found, and the name of its own that it can
-- be moved to. `displaced` is that name if the next write takes its place, and `takes_over` says
-- whether that write has its usage.
local foreign_key, foreign_name, displaced, takes_over
-- `value` begins with the value at `key`, which is of another configuration unless it is damaged.
local function note_foreign(key, value)
    local _, last = find(value, '^~%a[%d.]*;')
    if last then
        foreign_key, foreign_name = key, key .. sub(value, 1, last)
    end
end
-- Reads the state of a key. Returns the value, where its state begins, and the parameters if they
-- are those of another configuration, and the key to write to. Returns nil as the value if there is
-- none to use, and an error as the last result. The state takes `state_len` bytes, or
-- `len_of(params)` bytes under other parameters, and then any number of entries of `entry_len` bytes.
local function read_value(key, own_header, state_len, len_of, entry_len)
    foreign_key, displaced, moved_from = nil, nil, nil
    local value = try_call('GET', key)
    if type(value) == 'table' then
        return nil, nil, nil, key, read_error(value)
    elseif value == NO_STATE then
        value = nil
    end
    local header_len = #own_header
    local function has_len(value, len)
        local rest = #value - len
        return rest == 0 or entry_len and rest > 0 and fmod(rest, entry_len) == 0
    end
    local function is_own(value)
        return has_len(value, header_len + state_len) and sub(value, 1, header_len) == own_header
    end
    if value and is_own(value) then
        return value, header_len + 1, nil, key
    end
    if value then
        note_foreign(key, value)
    end
    local own_key = key .. own_header
    local own_value = call('GET', own_key)
    if own_value and is_own(own_value) then
        moved_from = key
        return own_value, header_len + 1, nil, own_key
    elseif not value then
        return nil, nil, nil, key
    end
    local params, state_offset = parse_header(value, own_header)
    local is_whole = params == nil
        or params and has_len(value, state_offset - 1 + (len_of and len_of(params) or state_len))
    if not is_whole then
        return nil, nil, nil, key, CORRUPT
    end
    displaced, takes_over = foreign_name, params ~= nil
    if not params then
        return nil, nil, nil, key
    end
    return value, state_offset, params, key
end

-- Makes a key live for `ttl` at least, if it is there.
local function prolong(key, ttl)
    local left = call('PTTL', key)
    if left >= 0 and left < ttl then
        call('PEXPIRE', key, ttl)
    end
end

-- Moves the value of another configuration away from `key`, which has to be written next. The key
-- followed by `~` then has the headers of the configurations whose usage was taken over: the last few,
-- because a policy has few configurations.
local function move_away(key, name, headers, ttl)
    call('RENAME', key, name)
    ttl = max(ttl, call('PTTL', name), call('PTTL', key .. '~'))
    call('SET', key .. '~', headers, 'PX', ttl + 1)
end

-- Moves the value of another configuration away, before the key is written with this time to live.
-- If the written one has its usage, it lives as long at least, and so do the values that were moved
-- away before it. Otherwise their configurations would take over the usage that was theirs.
local function make_room(key, ttl)
    if not displaced then
        return
    end
    local headers = call('GET', key .. '~') or ''
    if takes_over then
        local header = sub(displaced, #key + 1)
        if not find(headers, header, 1, true) then
            headers = headers .. header
        end
    end
    local kept = headers
    while #kept > 1000 do
        kept = string.gsub(kept, '^[^;]*;', '')
    end
    move_away(key, displaced, kept, takes_over and ttl or 1)
    if takes_over then
        for other in gmatch(headers, '~%a[%d.]*;') do
            prolong(key .. other, ttl)
        end
    end
    foreign_key, displaced = nil, nil
end

-- Moves the value of another configuration away, for a state that is not stored. The next
-- configuration would take over the usage of a value that stays at the key.
local function move_foreign()
    if foreign_key then
        move_away(foreign_key, foreign_name, call('GET', foreign_key .. '~') or '', 1)
        call('PSETEX', foreign_key, call('PTTL', foreign_key .. '~') + 1, NO_STATE)
        foreign_key, displaced = nil, nil
    end
end

-- Deletes the state of this configuration.
local function remove(key)
    if displaced then
        move_foreign()
        return
    end
    local left = moved_from and -1 or call('PTTL', key .. '~')
    if left >= 0 then
        call('PSETEX', key, left + 1, NO_STATE)
    else
        call('DEL', key)
    end
end

-- The time to live of a value, which is to be written, that has to live for `ttl` itself. A key lives
-- longer than the states that were moved away from it.
local function key_ttl(key, ttl)
    if moved_from then
        prolong(moved_from, ttl + 1)
        prolong(moved_from .. '~', ttl)
        return ttl
    end
    return max(ttl, call('PTTL', key .. '~') + 1)
end

-- Writes a state that decides like a fresh one from `forgettable_at` on.
local function store(key, value, forgettable_at)
    if forgettable_at <= now then
        remove(key)
    else
        local ttl = ttl_ms(forgettable_at)
        make_room(key, ttl)
        call('PSETEX', key, key_ttl(key, ttl), value)
    end
end
