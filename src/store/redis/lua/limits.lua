-- Decides calls on keys. A key has one limit or several, which take a cost all or not at all. A limit is a level
-- (buckets, GCRA), cells (windows, grids, windows of a calendar) or a log.
--
-- KEYS: the key of each call. Its name ends with the layout of its value: whatever has the same layout shares it.
-- ARGV: how often each call is made, as packed doubles, or nothing if that is once. Then packed doubles of each call, or
--   of all if they are alike: the operation, then of each limit twelve: its kind, the `cost`, when a cost that is given
--   back was `taken`, and its settings.
-- Reply: packed integers, of each limit of each call five: the time of its key; how often the call was admitted; and what
--   holds after that: the units that are left, or negative the time until the turn of a cost that has booked one; the time
--   until there is room for the cost, 0 if there is, or -1 if that is never; and the time until all is left. Or all are one
--   negative number: the value cannot be read.
--
-- A value is packed integers of seven bytes: the time of the last write; the moment until which the key is kept at least;
-- what is used of each limit, in units and as of that write; and, if it is ahead, how far the time of the key is ahead of
-- the server's: it goes on where it was when the server's is set back. The value does not say what the limit is. Times are
-- microseconds since 1970. Numbers are integers below 2^53, of which the sum of any two compares right.
--
-- Redis makes each function anew in each call, so there are few, and what is needed once is not in one. A step of Lua is
-- slow there, and a call of `min` or `type` takes as long as eight.
local TAKE, PEEK, REFUND, CHARGE, RESET = 1, 2, 3, 4, 5
local CORRUPT, WRONG_TYPE = -1, -2
local MAX_NUMBERS = 4096
-- How much longer than its value a key lives at most: its expiry, which takes twice as long as all else, is set once in
-- that time.
local LINGER = 10000000
-- How long a key that began with less than a full bucket is kept after it is full: a month.
local KEPT = 30 * 86400 * 1000000
local call, pcall, pack, numbers_of, rep = redis.call, redis.pcall, struct.pack, struct.unpack, string.rep
local ceil, max, min = math.ceil, math.max, math.min
local keys, args, unpack = KEYS, ARGV, unpack

local clock = call('TIME')
local server_now = clock[1] * 1000000 + clock[2]
-- By the clock of the key at hand.
local now
-- What is used at the key at hand, as the numbers of its value, and the limits.
local state, limits

local function cell_of(limit, time)
    local starts, length = limit.starts, limit.length
    if limit.anchored then return time end
    if not starts then return (time + limit.padding - fmod(time + limit.padding, length)) / length end
    for index = 1, 4 do
        if time < starts[index] then return starts[index] end
    end
    -- The clocks differ by more than a window.
    length = starts[4] - starts[3]
    return time + length - fmod(time - starts[4], length)
end

local function used_of(limit)
    local at, own, used = limit.at, limit.own, 0
    if limit.weighted then
        used = mul_div(state[at + 3], limit.length - fmod(now + limit.padding, limit.length), limit.length)
        return used + state[at + 2]
    elseif own then
        for index = 3, #own, 2 do used = used + own[index] end
    else
        for age = at + 2, at + 1 + limit.count do used = used + state[age] end
    end
    return used
end

-- How long it takes that so much of a level drains.
local function span_of(limit, units, part)
    local span = units * limit.period + part
    if span > MAX_INT then
        local whole, rest = mul_div(units, limit.period, limit.rate)
        return min(whole + ceil((rest + part) / limit.rate), MAX_INT - now)
    end
    span = span / limit.rate
    return span + -span % 1
end

local counts = args[1] ~= '' and { numbers_of('<' .. rep('d', #args[1] / 8), args[1]) }
-- Of the call at hand the operation, and the limits that are logs; how many numbers a value has before these, and their
-- format; and how long a value is that is only these.
local op, logs, fixed, format, length
local replies, text = {}, nil
for index = 1, #keys do
    local key, own_text = keys[index], args[index + 1] or args[2]
    if own_text ~= text then
        text = own_text
        local n = { numbers_of('<' .. rep('d', #text / 8), text) }
        op, limits, logs, fixed = n[1], {}, {}, 2
        for p = 2, #n - 12, 12 do
            local kind, division = n[p], n[p + 7]
            local limit
            if kind == 1 then
                limit = { at = fixed, cost = n[p + 1], taken = n[p + 2], limit = n[p + 3], rate = n[p + 4],
                    period = n[p + 5], initial = n[p + 6],
                    kept = n[p + 6] > 0 and KEPT or 0, most = n[p + 7], most_part = n[p + 8] }
                fixed = fixed + 2
            elseif kind == 2 then
                limit = { at = fixed, cost = n[p + 1], taken = n[p + 2], limit = n[p + 3], length = n[p + 4],
                    padding = n[p + 5], count = n[p + 6], weighted = division == 1, anchored = division == 2,
                    starts = division == 3 and { n[p + 8], n[p + 9], n[p + 10], n[p + 11] } }
                fixed = fixed + 1 + limit.count
            else
                limit = { at = 0, cost = n[p + 1], taken = n[p + 2], limit = n[p + 3], period = n[p + 4], own = {} }
                logs[#logs + 1] = limit
            end
            limits[#limits + 1] = limit
        end
        format, length = '<' .. rep('i7', fixed), #logs == 0 and 7 * fixed
    end

    -- What is used, brought to the present by the clock of the key.
    local value = op ~= RESET and pcall('GET', key)
    local failure, lead, is_set_back = nil, 0, false
    now = server_now
    if not value then
        state = { 0, 0 }
        for part = 1, #limits do
            local limit = limits[part]
            local at = limit.at
            if limit.rate then
                state[at + 1], state[at + 2] = limit.initial, 0
            elseif limit.own then
                limit.own = { 0 }
            else
                state[at + 1] = limit.anchored and -1 or cell_of(limit, now)
                for age = at + 2, at + 1 + limit.count do state[age] = 0 end
            end
        end
    elseif #value == length then
        state = { numbers_of(format, value) }
    elseif type(value) == 'table' then
        -- Any other error ends the script, so that the client learns its text.
        failure = string.find(value.err, 'WRONGTYPE', 1, true) and WRONG_TYPE or error(value.err)
    else
        local count, place = #value / 7, fixed + 1
        local is_valid = count % 1 == 0 and count >= fixed and count <= MAX_NUMBERS
        state = is_valid and { numbers_of('<' .. rep('i7', count), value) } or { 0 }
        for log = 1, #logs do
            local last = place + 2 * (state[place] or -1)
            is_valid = is_valid and last >= place and last <= count
            if is_valid then logs[log].own, place = { unpack(state, place, last) }, last + 1 end
        end
        if place == count then lead, place = state[count], count + 1 end
        failure = not (is_valid and place == count + 1) and CORRUPT or nil
    end
    if value and not failure then
        local written = state[1]
        if written - server_now > lead then is_set_back, lead = true, written - server_now end
        if lead > 0 then now = server_now + lead end
        if written < 0 or now > MAX_INT then failure = CORRUPT end
        for part = 1, #limits do
            local limit = limits[part]
            local at, own = limit.at, limit.own
            if limit.rate then
                state[at + 1], state[at + 2] = drain(limit, state[at + 1], state[at + 2], now - written)
            elseif own then
                local expired = 0
                while own[expired + 2] and own[expired + 2] + limit.period <= now do expired = expired + 2 end
                for index = 2, expired > 0 and #own or 0 do own[index] = own[index + expired] end
                own[1] = own[1] - expired / 2
            else
                local steps = cell_of(limit, now) - state[at + 1]
                if limit.anchored then
                    if steps >= limit.length then state[at + 1], state[at + 2] = -1, 0 end
                elseif steps > 0 then
                    state[at + 1] = state[at + 1] + steps
                    for age = limit.count, 1, -1 do
                        state[at + age + 1] = steps < age and state[at + age + 1 - steps] or 0
                    end
                end
            end
        end
    end

    if failure then
        replies[#replies + 1] = rep(pack('<i8', failure), 5 * #limits)
    else
        for part = 1, op == REFUND and #limits or 0 do
            local limit = limits[part]
            local at, own, cost, taken = limit.at, limit.own, limit.cost, limit.taken
            if limit.rate then
                local units, part = state[at + 1], state[at + 2]
                -- Of a turn that has not come, and is the last one. Otherwise it passes unused.
                local ahead, ahead_part = drain(limit, units, part, taken - now)
                local is_last = now < taken and (ahead < limit.most or ahead == limit.most and ahead_part == 0)
                if is_last or limit.most < 0 then
                    -- Time has given back what has drained since.
                    local left, left_part = drain(limit, cost, 0, now - taken)
                    units, part = units - left, part - left_part
                    if part < 0 then units, part = units - 1, part + limit.period end
                    if units < 0 then units, part = 0, 0 end
                    state[at + 1], state[at + 2] = units, part
                end
            elseif own then
                -- Newest cost first, but none that is newer than the refunded one.
                for index = #own, 3, -2 do
                    if own[index - 1] <= taken then
                        local given = min(cost, own[index])
                        own[index], cost = own[index] - given, cost - given
                        if own[index] == 0 then
                            table.remove(own, index)
                            table.remove(own, index - 1)
                            own[1] = own[1] - 1
                        end
                    end
                end
            else
                for age = max(state[at + 1] - cell_of(limit, taken), 0) + 1, limit.count do
                    local given = min(cost, state[at + age + 1])
                    state[at + age + 1], cost = state[at + age + 1] - given, cost - given
                end
            end
        end

        local taken, count = 0, counts and counts[index] or 1
        while (op == TAKE or op == CHARGE) and taken < count do
            local has_room = true
            for part = 1, op == TAKE and #limits or 0 do
                local limit = limits[part]
                local at, has = limit.at, nil
                if limit.rate then
                    local units = state[at + 1] + limit.cost
                    has = units < limit.most or units == limit.most and state[at + 2] <= limit.most_part
                else
                    has = used_of(limit) + limit.cost <= limit.limit
                end
                has_room = has_room and has
            end
            if not has_room then break end
            for part = 1, #limits do
                local limit = limits[part]
                local at, own, cost = limit.at, limit.own, limit.cost
                if limit.rate then
                    local units = state[at + 1] + cost
                    state[at + 1] = units < MAX_INT and units or MAX_INT
                elseif own then
                    local last = #own
                    if last == 1 or own[last - 1] < now and own[1] < limit.limit then
                        own[1], own[last + 1], own[last + 2] = own[1] + 1, now, cost
                    else
                        -- A log that is full grows no longer.
                        own[last - 1], own[last] = now, min(own[last] + cost, MAX_INT)
                    end
                else
                    if state[at + 1] < 0 then state[at + 1] = now end
                    state[at + 2] = min(state[at + 2] + cost, MAX_INT)
                end
            end
            taken = taken + 1
        end

        local kept, linger = 0, LINGER
        for part = 1, #limits do
            local limit = limits[part]
            local at, cost, own = limit.at, limit.cost, limit.own
            local left, retry, reset, keeps = 0, 0, 0, 0
            if limit.rate then
                local units, part = state[at + 1], state[at + 2]
                local over, wanted = units - limit.limit, units + cost
                if units > 0 or part > 0 then reset = span_of(limit, units, part) end
                if wanted > limit.most or wanted == limit.most and part > limit.most_part then
                    retry = limit.most < 0 and -1
                        or span_of(limit, min(wanted, MAX_INT) - limit.most, part - limit.most_part)
                end
                if over < 0 then left = part > 0 and -over - 1 or -over else left = -span_of(limit, over, part) end
                keeps = reset + limit.kept
                -- What a larger limit has used more goes when it would have gone.
                if over > 0 and value and limit.kept == 0 then
                    linger = 0
                    keeps = min(keeps, state[2] - now + span_of(limit, min(cost * taken, MAX_INT), 0))
                end
            else
                local used = used_of(limit)
                local excess = used + cost - limit.limit
                left, retry = max(limit.limit - used, 0), excess > 0 and -1 or 0
                if limit.weighted then
                    local function until_counts(most)
                        -- Of the window that is the older one then, a part may count.
                        local ends, count = state[at + 1] + 1, state[at + 3]
                        if state[at + 2] > most then
                            ends, count = ends + 1, state[at + 2]
                        else
                            most = most - state[at + 2]
                        end
                        local span, rest = mul_div(most + 1, limit.length, count)
                        if rest == 0 then span = span - 1 end
                        return ends * limit.length - limit.padding - span - now
                    end
                    if used > 0 then reset = until_counts(0) end
                    if excess > 0 and cost <= limit.limit then retry = until_counts(limit.limit - cost) end
                elseif own then
                    for index = 3, #own, 2 do
                        reset, excess = own[index - 1] + limit.period - now, excess - own[index]
                        if retry < 0 and excess <= 0 then retry = reset end
                    end
                else
                    local newest, count = state[at + 1], limit.count
                    for age = count, 1, -1 do
                        local counted = state[at + age + 1]
                        if counted > 0 then
                            local ends = limit.starts and newest or limit.anchored and newest + limit.length
                                or (newest - age + 1 + count) * limit.length - limit.padding
                            reset, excess = ends - now, excess - counted
                            if retry < 0 and excess <= 0 then retry = reset end
                        end
                    end
                end
                keeps = reset
                -- A window that is open stays open, whatever is given back.
                if limit.anchored and state[at + 1] >= 0 then keeps = state[at + 1] + limit.length - now end
            end
            replies[#replies + 1] = pack('<i8i8i8i8i8', now, taken, left, retry, reset)
            if keeps > kept then kept = keeps end
        end
        -- The time of a key that was set back would begin there again with each denial, if that were not written.
        if op ~= PEEK and (op ~= TAKE or taken > 0) or is_set_back then
            if kept > 0 then
                local expires = state[2]
                -- A refund may shorten it.
                if now + kept > expires or op == REFUND then state[2] = min(now + kept + linger, MAX_INT) end
                state[1] = now
                local new = pack(format, unpack(state))
                for log = 1, #logs do
                    local own = logs[log].own
                    new = new .. pack('<' .. rep('i7', #own), unpack(own))
                end
                if lead > 0 then new = new .. pack('<i7', lead) end
                if state[2] == expires and #new == #value then
                    call('SETRANGE', key, '0', new)
                else
                    call('PSETEX', key, ceil((state[2] - now) / 1000) + 100, new)
                end
            else
                call('DEL', key)
            end
        end
    end
end
return table.concat(replies)
