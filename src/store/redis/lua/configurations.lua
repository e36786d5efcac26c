-- Machines with different configurations may share a key, as in a rolling deploy. Each
-- configuration has a state of its own, so together they admit at most the sum of what each
-- promises. A configuration that has no state yet takes over the usage of the newest one, once. The
-- value of a key that has several is `~&`, and for each of them, the newest last: two packed doubles,
-- until when it is kept and the length of its value, and its value. One whose state was removed has a
-- value without a state.
--
-- A key with a quota of its own has one quota at a time, apart from machines that have not learned of a change yet.
-- So what it uses counts under each quota that it had. Each is kept as long as the use under it alone would count.
-- After that, it takes over what counts under the newest one.

-- Whether the call does not count as use under the quota at hand, which is then not kept for longer.
local is_no_use = false

-- What is stored at a key beside or instead of the configuration with `header`; nil if it is damaged. Few calls
-- need it, so all of it is one function.
local function parse_configurations(value, header)
    local SEVERAL, MAX_CONFIGURATIONS, HEADER = '~&', 32, '^~%a[%d.]*;'
    -- Oldest first. The index of this configuration if it is among them, and whether it takes over the usage of the
    -- newest one.
    local list, own_index, takes_over = {}, nil, false

    if string.sub(value, 1, 2) == SEVERAL then
        local at = 3
        while at <= #value do
            if #value < at + 15 then
                return nil
            end
            local kept_until, length = struct.unpack('<dd', value, at)
            local part = string.sub(value, at + 16, at + 15 + length)
            if #part ~= length then
                return nil
            end
            if not units or kept_until > now then
                list[#list + 1] = { header = string.match(part, HEADER), value = part, kept_until = kept_until }
            end
            at = at + 16 + length
        end
    else
        list[1] = { header = string.match(value, HEADER), value = value }
    end
    if not list[1] and not units then
        return nil
    end
    for index = 1, #list do
        if not list[index].header then
            return nil
        elseif list[index].header == header then
            own_index = index
        end
    end

    local self = {}
    -- As `read_value`.
    function self.read(state_len, len_of, entry_len)
        local found = list[own_index or #list]
        local params
        if not found then
            return nil
        elseif not own_index and letter_of(found.header) == letter_of(header) then
            params = header_params(found.header)
        end
        local length = #found.value - #found.header
        if length == 0 or not own_index and not params then
            return nil
        elseif not has_len(length, params and len_of and len_of(params) or state_len, entry_len) then
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
    function self.write(key, value, unused_at)
        local first = list[1]
        if first and not first.kept_until then
            -- Times to live are whole milliseconds of a clock of whole milliseconds.
            local left = (redis.call('PTTL', key) - LINGER_MS + 2) * 1000
            first.kept_until = now + math.max(left, 0)
        end
        own_index = own_index or #list + 1
        if is_no_use and list[own_index] then
            unused_at = list[own_index].kept_until
        end
        list[own_index] = { header = header, value = value, kept_until = unused_at }
        local kept, packed, last_until, new_index = {}, { SEVERAL }, unused_at, nil
        for index = math.max(1, #list - MAX_CONFIGURATIONS + 1), #list do
            local configuration = list[index]
            if takes_over and not units then
                configuration.kept_until = math.max(configuration.kept_until, unused_at)
            end
            local is_unused = index ~= own_index and configuration.kept_until <= now
            if kept[1] and not units or not is_unused then
                if is_unused then
                    configuration.value = configuration.header
                end
                local kept_until = configuration.kept_until
                kept[#kept + 1] = configuration
                packed[#packed + 1] = struct.pack('<dd', kept_until, #configuration.value) .. configuration.value
                last_until = math.max(last_until, kept_until)
                if index == own_index then
                    new_index = #kept
                end
            end
        end
        list, own_index, takes_over = kept, new_index, false
        if #kept > 1 then
            redis.call('PSETEX', key, ttl_ms(last_until), table.concat(packed))
            return
        end
        configurations = nil
        if #value == #header then
            redis.call('DEL', key)
        else
            redis.call('PSETEX', key, ttl_ms(unused_at), value)
        end
    end

    -- Counts what the call has used under the other quotas of the key.
    function self.count_under_others(key, op, args)
        local own_reply = reply
        for index, other in ipairs(list) do
            local count = index ~= own_index and others[letter_of(other.header)]
            if count then
                local limit, other_args = count(other.header, header_params(other.header), args, other.kept_until)
                reply, is_no_use = {}, true
                limit(key, op == TAKE and CHARGE or op, other_args, true)
            end
        end
        reply, is_no_use = own_reply, false
    end

    -- Makes this configuration the newest one, after a reset: the next new one takes over nothing else.
    function self.make_newest(key)
        if own_index ~= #list then
            local own = own_index and table.remove(list, own_index)
            own = own or { value = header, kept_until = now }
            own_index = nil
            self.write(key, own.value, own.kept_until)
        end
    end
    return self
end

-- Reads the state of a key. Returns a value, where its state begins, and the parameters if they are
-- those of another configuration. Returns nil as the value if there is none to use, and an error as the
-- last result. The state has the length of `has_len`, or `len_of(params)` bytes under other parameters.
local function read_value(key, header, state_len, len_of, entry_len)
    configurations = nil
    local value = redis.pcall('GET', key)
    if not value then
        return nil
    elseif type(value) == 'table' then
        return nil, nil, nil, read_error(value)
    elseif string.sub(value, 1, #header) == header and has_len(#value - #header, state_len, entry_len) then
        return value, #header + 1
    end
    configurations = parse_configurations(value, header)
    if not configurations then
        return nil, nil, nil, CORRUPT
    end
    return configurations.read(state_len, len_of, entry_len)
end

-- Writes a state that decides like a fresh one from `unused_at` on.
local function store(key, header, state, unused_at)
    local is_unused = unused_at <= now
    if configurations then
        configurations.write(key, is_unused and header or header .. state, math.max(unused_at, now))
    elseif is_unused then
        redis.call('DEL', key)
    else
        redis.call('PSETEX', key, ttl_ms(unused_at), header .. state)
    end
end

-- Removes the state of this configuration.
local function remove(key, header)
    store(key, header, '', now)
end
