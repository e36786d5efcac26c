-- Decides calls on keys. A key has one limit or several, which take a cost all or not at all. A limit is a level
-- (buckets, GCRA), cells (windows, grids, windows of a calendar) or a log.
--
-- KEYS: the key of each call. Its name ends with the layout of its value: whatever has the same layout shares it.
-- ARGV: how often each call is made, as packed doubles, or nothing if that is once. Then packed doubles of each call, or
--   of all if they are alike: the operation, then of each limit twelve: its kind, the `cost`, when a cost that is given
--   back was `taken`, and its settings.
-- Reply: of each call the time of its key, how often it was admitted, and what holds after that, of each limit four: the
--   units that are left; the time until there is room for the cost, 0 if there is, or -1 if that is never; the time until
--   all is left; and the time until the turn of a cost that has booked one. Or only a negative number: the value cannot
--   be read.
--
-- A value is packed doubles: the time of the last write, how far the time of the key is ahead of the server's, and what
-- is used of each limit, in units and as of that write. It does not say what the limit is. The time of a key goes on
-- where it was when the server's is set back. Times are microseconds since 1970. Numbers are integers below 2^53, of
-- which the sum of any two compares right.
--
-- Redis makes each function anew in each call, so there are few, and what is needed once is not in one.
local TAKE, PEEK, REFUND, CHARGE, RESET = 1, 2, 3, 4, 5
local CORRUPT, WRONG_TYPE = -1, -2
local MAX_NUMBERS = 4096
-- How much longer than its value a key lives, so that the key of a limit in use does not disappear between two calls;
-- and how long at most. In milliseconds.
local LINGER, MAX_TTL = 1000, 2 ^ 50
-- How long a key that began with less than a full bucket is kept after it is full: a month.
local KEPT = 30 * 86400 * 1000000
local call, pack, numbers_of, rep = redis.call, struct.pack, struct.unpack, string.rep
local ceil, max, min = math.ceil, math.max, math.min

local clock = call('TIME')
local server_now = clock[1] * 1000000 + clock[2]
-- By the clock of the key at hand.
local now
-- What is used at the key at hand, as the numbers of its value, and the limits.
local state, limits

-- A limit is found at its place `at` in `state`: `state[at + 1]` is the first number.
--
-- Of a level `rate` units drain in a `period`. A unit has as many parts as the period has microseconds. `initial` units
-- of a new key are used. State: the units and the parts that are used.
--   admitted if used + cost <= most and most_part, which is the capacity, and more for a turn; never if it is negative
--
-- Of cells the newest `count` count: (time + padding) / length. Of two that are `weighted` the older one counts less and
-- less. One that is `anchored` begins when it is first used after the one before. In a calendar windows begin at four
-- moments `starts`; the client's clock is between the second and the third. State: the newest cell, which is its number,
-- its start (-1 if none is open), or its end in a calendar; then the counts, newest first.
--
-- A log keeps the moment of every cost for a `period`. It has a table `own` of its own: how many, then moments and costs,
-- oldest first.
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

local function admits(limit)
    if not limit.rate then return used_of(limit) + limit.cost <= limit.limit end
    local units, part = min(state[limit.at + 1] + limit.cost, MAX_INT), state[limit.at + 2]
    return units < limit.most or units == limit.most and part <= limit.most_part
end

-- How long it takes that so much of a level drains.
local function span_of(limit, units, part)
    local whole, rest = mul_div(units, limit.period, limit.rate)
    rest = rest + part
    local more = fmod(rest, limit.rate)
    whole = whole + (rest - more) / limit.rate
    return min(more > 0 and whole + 1 or whole, MAX_INT - now)
end

-- The figures of a limit in the reply, and how long a value of them has to be kept.
local function figures(limit)
    local at, cost, own = limit.at, limit.cost, limit.own
    if limit.rate then
        local units, part = state[at + 1], state[at + 2]
        local over, retry, turn = units - limit.limit, 0, 0
        local reset = span_of(limit, units, part)
        if not admits(limit) then
            retry = limit.most < 0 and -1
                or span_of(limit, min(units + cost, MAX_INT) - limit.most, part - limit.most_part)
        end
        if over > 0 or over == 0 and part > 0 then turn = span_of(limit, over, part) end
        local left = max(-over - (part > 0 and 1 or 0), 0)
        return left, retry, reset, turn, limit.initial > 0 and reset + KEPT or reset
    end
    local used = used_of(limit)
    local excess, reset, kept = used + cost - limit.limit, 0, nil
    local retry = excess > 0 and -1 or 0
    if limit.weighted then
        local function until_counts(most)
            -- Of the window that is the older one then, a part may count.
            local ends, count = state[at + 1] + 1, state[at + 3]
            if state[at + 2] > most then
                ends, count = ends + 1, state[at + 2]
            else
                most = most - state[at + 2]
            end
            local left, rest = mul_div(most + 1, limit.length, count)
            if rest == 0 then left = left - 1 end
            return ends * limit.length - limit.padding - left - now
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
        -- A window that is open stays open, whatever is given back.
        kept = limit.anchored and newest >= 0 and newest + limit.length - now
    end
    return max(limit.limit - used, 0), retry, reset, 0, kept or reset
end

local counts = ARGV[1] ~= '' and { numbers_of('<' .. rep('d', #ARGV[1] / 8), ARGV[1]) }
-- The operation of the call at hand; how many numbers a value has before its logs, and their format.
local op, fixed, format
local replies, text = {}, nil
for index = 1, #KEYS do
    local key, own_text = KEYS[index], ARGV[index + 1] or ARGV[2]
    if own_text ~= text then
        text = own_text
        local n = { numbers_of('<' .. rep('d', #text / 8), text) }
        op, limits, fixed = n[1], {}, 2
        for p = 2, #n - 12, 12 do
            local kind, division = n[p], n[p + 7]
            local limit
            if kind == 1 then
                limit = { at = fixed, cost = n[p + 1], taken = n[p + 2], limit = n[p + 3], rate = n[p + 4],
                    period = n[p + 5], initial = n[p + 6], most = n[p + 7], most_part = n[p + 8] }
                fixed = fixed + 2
            elseif kind == 2 then
                limit = { at = fixed, cost = n[p + 1], taken = n[p + 2], limit = n[p + 3], length = n[p + 4],
                    padding = n[p + 5], count = n[p + 6], weighted = division == 1, anchored = division == 2,
                    starts = division == 3 and { n[p + 8], n[p + 9], n[p + 10], n[p + 11] } }
                fixed = fixed + 1 + limit.count
            else
                limit = { at = 0, cost = n[p + 1], taken = n[p + 2], limit = n[p + 3], period = n[p + 4], own = {} }
            end
            limits[#limits + 1] = limit
        end
        format = '<' .. rep('d', fixed)
    end

    -- What is used, brought to the present by the clock of the key.
    local value = op ~= RESET and redis.pcall('GET', key)
    local failure, ahead, is_set_back = nil, 0, false
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
    elseif type(value) == 'table' then
        -- Any other error ends the script, so that the client learns its text.
        failure = string.find(value.err, 'WRONGTYPE', 1, true) and WRONG_TYPE or error(value.err)
    else
        local count, place, is_valid = #value / 8, fixed + 1, false
        if count % 1 == 0 and count >= fixed and count <= MAX_NUMBERS then
            state = { numbers_of(count == fixed and format or '<' .. rep('d', count), value) }
            local written, lead = state[1], state[2]
            is_valid = written >= 0 and written <= MAX_INT and lead >= 0 and lead <= MAX_INT
            for part = 1, #limits do
                if limits[part].own then
                    local last = place + 2 * (state[place] or -1)
                    is_valid = is_valid and last % 1 == 0 and last >= place and last <= count
                    if is_valid then limits[part].own, place = { unpack(state, place, last) }, last + 1 end
                end
            end
            -- The last one is the place after the value.
            for index = count + 1, fixed + 1, -1 do state[index] = nil end
            is_set_back = written - server_now > lead
            ahead = is_set_back and written - server_now or lead
            now = server_now + ahead
        end
        failure = not (is_valid and place == count + 1) and CORRUPT or nil
        for part = 1, failure and 0 or #limits do
            local limit = limits[part]
            local at, own = limit.at, limit.own
            if limit.rate then
                state[at + 1], state[at + 2] = drain(limit, state[at + 1], state[at + 2], now - state[1])
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
        replies[index] = { failure }
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
            for part = 1, op == TAKE and #limits or 0 do has_room = has_room and admits(limits[part]) end
            if not has_room then break end
            for part = 1, #limits do
                local limit = limits[part]
                local at, own, cost = limit.at, limit.own, limit.cost
                if limit.rate then
                    state[at + 1] = min(state[at + 1] + cost, MAX_INT)
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

        local reply, kept = { now, taken, 0, 0, 0, 0 }, 0
        for part = 1, #limits do
            local size, keeps = 4 * part - 2, nil
            reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4], keeps = figures(limits[part])
            kept = max(kept, keeps)
        end
        replies[index] = reply
        -- The time of a key that was set back would begin there again with each denial, if that were not written.
        if op ~= PEEK and (op ~= TAKE or taken > 0) or is_set_back then
            if kept > 0 then
                state[1], state[2] = now, ahead
                value = pack(format, unpack(state))
                for part = 1, #limits do
                    local own = limits[part].own
                    if own then value = value .. pack('<' .. rep('d', #own), unpack(own)) end
                end
                call('PSETEX', key, min(ceil(kept / 1000) + LINGER, MAX_TTL), value)
            else
                call('DEL', key)
            end
        end
    end
end
return replies
