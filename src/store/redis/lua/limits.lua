-- Decides calls on keys. A key has one limit or several, which take a cost all or not at all. A limit is a level
-- (buckets, GCRA), cells (windows, grids, windows of a calendar) or a log.
--
-- KEYS: the key of each call. Its name ends with the layout of its value: whatever has the same layout shares it.
-- ARGV: how often each call is made, as packed doubles, or nothing if that is once. Then packed doubles of each call, or
--   of all if they are alike: the operation, then of each limit twelve: its kind, the `cost`, when a cost that is given
--   back was `taken`, and its settings.
-- Reply: of each call the time of its key, then for each limit 1 or 0, whether it has room for the cost, and what is
--   used of it: before a take, and after any other change. Of a call that is made more often, and at last is denied, also
--   how often it was admitted, and the same once more. Or only a negative number: the value cannot be read.
--
-- A value is packed doubles: the time of the last write, how far the time of the key is ahead of the server's, and what
-- is used of each limit, in units and as of that write. It does not say what the limit is. The time of a key goes on
-- where it was when the server's is set back. Times are microseconds since 1970. Numbers are integers below 2^53, of
-- which the sum of any two compares right.
local TAKE, PEEK, REFUND, CHARGE, RESET = 1, 2, 3, 4, 5
-- How time is divided into cells.
local WEIGHTED, ANCHORED, CALENDAR = 1, 2, 3
local CORRUPT, WRONG_TYPE = -1, -2
local MAX_INT, MAX_NUMBERS = 9007199254740991, 4096
-- How much longer than its value a key lives, so that the key of a limit in use does not disappear between two calls;
-- and how long at most. In milliseconds.
local LINGER, MAX_TTL = 1000, 2 ^ 50
local call, pack, numbers_of = redis.call, struct.pack, struct.unpack
local ceil, fmod, max, min, rep = math.ceil, math.fmod, math.max, math.min, string.rep

local clock = call('TIME')
local server_now = clock[1] * 1000000 + clock[2]
-- By the clock of the key at hand.
local now, ahead

-- A limit is found at its place in `state`, the numbers of a value: `state[at + 1]` is the first one.
--
-- Of a level `rate` units drain in a `period`. A unit has as many parts as the period has microseconds. `initial` units
-- of a new key are used, which is kept for `kept` longer. State: the units and the parts that are used.
--   admitted if used + cost <= most and most_part
local Level = {}
function Level.parse(cost, taken, n, p)
    return { size = 2, cost = cost, taken = taken, rate = n[p], period = n[p + 1], initial = n[p + 2], kept = n[p + 3],
        most = n[p + 4], most_part = n[p + 5] }
end
function Level.begin(limit, state, at) state[at + 1], state[at + 2] = limit.initial, 0 end
function Level.advance(limit, state, at)
    state[at + 1], state[at + 2] = drain(limit, state[at + 1], state[at + 2], now - state[1])
end
function Level.admits(limit, state, at)
    local units, part = min(state[at + 1] + limit.cost, MAX_INT), state[at + 2]
    return units < limit.most or units == limit.most and part <= limit.most_part
end
function Level.charge(limit, state, at) state[at + 1] = min(state[at + 1] + limit.cost, MAX_INT) end
Level.take = Level.charge
-- Time has given back what has drained since. With a `most` it is a turn that has not come, if it is the last one.
function Level.refund(limit, state, at)
    if limit.most >= 0 then
        local units, part = drain(limit, state[at + 1], state[at + 2], limit.taken - now)
        if now >= limit.taken or units > limit.most or units == limit.most and part > 0 then return end
    end
    local left, left_part = drain(limit, limit.cost, 0, now - limit.taken)
    local units, part = state[at + 1] - left, state[at + 2] - left_part
    if part < 0 then units, part = units - 1, part + limit.period end
    if units < 0 then units, part = 0, 0 end
    state[at + 1], state[at + 2] = units, part
end
function Level.unused_at(limit, state, at)
    local unused_at = now + ceil((state[at + 1] * limit.period + state[at + 2]) / limit.rate)
    return limit.initial > 0 and max(unused_at + limit.kept, now + 1) or unused_at
end
function Level.tell(_, state, at, reply, size)
    reply[size + 1], reply[size + 2] = state[at + 1], state[at + 2]
    return size + 2
end

-- Of cells the newest `count` count: (time + padding) / length. Of two that are weighted the older one counts less and
-- less. One that is anchored begins when it is first used after the one before. In a calendar windows begin at four
-- moments `starts`; the client's clock is between the second and the third.
-- State: the newest cell, which is its number, its start (-1 if none is open), or its end in a calendar; then the
-- counts, newest first.
local Cells = {}
function Cells.parse(cost, taken, n, p)
    return { size = n[p + 3] + 1, cost = cost, taken = taken, limit = n[p], length = n[p + 1], padding = n[p + 2],
        count = n[p + 3], division = n[p + 4], starts = { n[p + 5], n[p + 6], n[p + 7], n[p + 8] } }
end
local function cell_of(limit, time)
    if limit.division == ANCHORED then return time end
    if limit.division == CALENDAR then
        local starts = limit.starts
        for index = 1, 4 do
            if time < starts[index] then return starts[index] end
        end
        -- The clocks differ by more than a window.
        local length = starts[4] - starts[3]
        return time + length - fmod(time - starts[4], length)
    end
    return (time + limit.padding - fmod(time + limit.padding, limit.length)) / limit.length
end
function Cells.begin(limit, state, at)
    state[at + 1] = limit.division == ANCHORED and -1 or cell_of(limit, now)
    for age = at + 2, at + 1 + limit.count do state[age] = 0 end
end
function Cells.advance(limit, state, at)
    local steps = cell_of(limit, now) - state[at + 1]
    if limit.division == ANCHORED then
        if steps >= limit.length then state[at + 1], state[at + 2] = -1, 0 end
        return
    elseif steps <= 0 then
        return
    end
    state[at + 1] = state[at + 1] + steps
    for age = limit.count, 1, -1 do state[at + age + 1] = steps < age and state[at + age + 1 - steps] or 0 end
end
function Cells.admits(limit, state, at)
    local used = 0
    if limit.division == WEIGHTED then
        local left = limit.length - fmod(now + limit.padding, limit.length)
        used = mul_div(state[at + 3], left, limit.length) + state[at + 2]
    else
        for age = at + 2, at + 1 + limit.count do used = used + state[age] end
    end
    return used + limit.cost <= limit.limit
end
function Cells.charge(limit, state, at)
    if state[at + 1] < 0 then state[at + 1] = now end
    state[at + 2] = min(state[at + 2] + limit.cost, MAX_INT)
end
Cells.take = Cells.charge
-- Newest cost first, but none that is newer than the refunded one.
function Cells.refund(limit, state, at)
    local cost = limit.cost
    for age = max(state[at + 1] - cell_of(limit, limit.taken), 0) + 1, limit.count do
        local given = min(cost, state[at + age + 1])
        state[at + age + 1], cost = state[at + age + 1] - given, cost - given
    end
end
function Cells.unused_at(limit, state, at)
    local newest = state[at + 1]
    -- A window that is open stays open, whatever is given back.
    if limit.division == ANCHORED then return newest < 0 and 0 or newest + limit.length end
    for age = 1, limit.count do
        if state[at + age + 1] > 0 then
            if limit.division == CALENDAR then return newest end
            return (newest - age + 1 + limit.count) * limit.length - limit.padding
        end
    end
    return 0
end
function Cells.tell(limit, state, at, reply, size)
    local count = limit.count + 1
    for index = 1, count do reply[size + index] = state[at + index] end
    return size + count
end

-- A log keeps the moment of every cost for a `period`. It has a table of its own: how many, then moments and costs,
-- oldest first.
local Log = {}
function Log.parse(cost, taken, n, p) return { size = 0, cost = cost, taken = taken, limit = n[p], period = n[p + 1] } end
function Log.size(numbers, place)
    local count = numbers[place]
    return count and count >= 0 and count % 1 == 0 and 1 + 2 * count or MAX_INT
end
function Log.advance(limit, state)
    local expired = 0
    while state[expired + 2] and state[expired + 2] + limit.period <= now do expired = expired + 2 end
    if expired == 0 then return end
    for index = 2, #state do state[index] = state[index + expired] end
    state[1] = state[1] - expired / 2
end
local function sum_of(state)
    local sum = 0
    for index = 3, #state, 2 do sum = sum + state[index] end
    return sum
end
function Log.admits(limit, state) return sum_of(state) + limit.cost <= limit.limit end
function Log.charge(limit, state)
    local last = #state
    if last == 1 or state[last - 1] < now and state[1] < limit.limit then
        state[1], state[last + 1], state[last + 2] = state[1] + 1, now, limit.cost
    else
        -- A log that is full grows no longer.
        state[last - 1], state[last] = now, min(state[last] + limit.cost, MAX_INT)
    end
end
Log.take = Log.charge
function Log.refund(limit, state)
    local cost = limit.cost
    for index = #state, 3, -2 do
        if state[index - 1] <= limit.taken then
            local given = min(cost, state[index])
            state[index], cost = state[index] - given, cost - given
            if state[index] == 0 then
                table.remove(state, index)
                table.remove(state, index - 1)
                state[1] = state[1] - 1
            end
        end
    end
end
function Log.unused_at(limit, state) return state[1] > 0 and state[#state - 1] + limit.period or 0 end
-- The sum, the newest moment, and that of the cost which has to expire before there is room.
function Log.tell(limit, state, _, reply, size)
    local sum, first = sum_of(state), 0
    local excess = sum + limit.cost - limit.limit
    for index = 3, #state, 2 do
        if excess <= 0 then break end
        first, excess = state[index - 1], excess - state[index]
    end
    reply[size + 1], reply[size + 2], reply[size + 3] = sum, state[1] > 0 and state[#state - 1] or 0, first
    return size + 3
end

local KINDS = { Level, Cells, Log }
-- The operation and the limits of the call at hand; how many numbers a value has before its logs, and their format; and
-- the limits that are logs.
local op, limits, fixed, format, logs
local function decode(text)
    local numbers = { numbers_of('<' .. rep('d', #text / 8), text) }
    op, limits, fixed, logs = numbers[1], {}, 2, {}
    for place = 2, #numbers - 12, 12 do
        local kind = KINDS[numbers[place]]
        local limit = kind.parse(numbers[place + 1], numbers[place + 2], numbers, place + 3)
        limit.is, limit.at = kind, fixed
        limits[#limits + 1], fixed = limit, fixed + limit.size
        if kind == Log then logs[#logs + 1], limit.at = limit, 0 end
    end
    format = '<' .. rep('d', fixed)
end

-- What is used at the key at hand. `logs` have their own.
local state
local function begin()
    state = { 0, 0 }
    for _, limit in ipairs(limits) do
        if limit.is == Log then limit.own = { 0 } else limit.is.begin(limit, state, limit.at) end
    end
end
-- Reads the numbers of a value. Returns whether it is one of these limits.
local function parse(value)
    local count = #value / 8
    if count == fixed and not logs[1] then
        state = { numbers_of(format, value) }
        -- It is the place after the value.
        state[count + 1] = nil
    else
        if count % 1 > 0 or count < fixed or count > MAX_NUMBERS then return false end
        state = { numbers_of('<' .. rep('d', count), value) }
        local place = fixed + 1
        for _, log in ipairs(logs) do
            local size = Log.size(state, place)
            if place + size - 1 > count then return false end
            log.own = { unpack(state, place, place + size - 1) }
            place = place + size
        end
        if place <= count then return false end
        for index = count + 1, fixed + 1, -1 do state[index] = nil end
    end
    local written, lead = state[1], state[2]
    return written >= 0 and written <= MAX_INT and lead >= 0 and lead <= MAX_INT
end
-- Brings what is used at a key to the present, by its clock. Returns an error, or nothing and whether its clock was set
-- back.
local function read(key)
    local value = op ~= RESET and redis.pcall('GET', key)
    now, ahead = server_now, 0
    if not value then
        begin()
        return nil, false
    elseif type(value) == 'table' then
        -- Any other error ends the script, so that the client learns its text.
        return string.find(value.err, 'WRONGTYPE', 1, true) and WRONG_TYPE or error(value.err)
    elseif not parse(value) then
        return CORRUPT
    end
    local lead = state[1] - server_now
    local is_set_back = lead > state[2]
    ahead = is_set_back and lead or state[2]
    now = server_now + ahead
    for index = 1, #limits do
        local limit = limits[index]
        limit.is.advance(limit, limit.own or state, limit.at)
    end
    return nil, is_set_back
end
local function write(key)
    local unused_at = now
    for index = 1, #limits do
        local limit = limits[index]
        unused_at = max(unused_at, limit.is.unused_at(limit, limit.own or state, limit.at))
    end
    if unused_at <= now then
        call('DEL', key)
        return
    end
    state[1], state[2] = now, ahead
    local value = pack(format, unpack(state))
    for index = 1, #logs do
        local own = logs[index].own
        value = value .. pack('<' .. rep('d', #own), unpack(own))
    end
    call('PSETEX', key, min(ceil((unused_at - now) / 1000) + LINGER, MAX_TTL), value)
end

local function admits_all()
    for part = 1, #limits do
        local limit = limits[part]
        if not limit.is.admits(limit, limit.own or state, limit.at) then return false end
    end
    return true
end
-- Adds what is used of each limit to a reply. Returns its size, and whether all have room.
local function tell(reply, size)
    local is_admitted = true
    for part = 1, #limits do
        local limit = limits[part]
        local kind, own, at = limit.is, limit.own or state, limit.at
        local admits = kind.admits(limit, own, at)
        is_admitted = is_admitted and admits
        reply[size + 1] = admits and 1 or 0
        size = kind.tell(limit, own, at, reply, size + 1)
    end
    return size, is_admitted
end

local counts = { numbers_of('<' .. rep('d', #ARGV[1] / 8), ARGV[1]) }
local replies, text = {}, nil
for index, key in ipairs(KEYS) do
    local own_text = ARGV[index + 1] or ARGV[2]
    if own_text ~= text then
        text = own_text
        decode(text)
    end
    local failure, is_set_back = read(key)
    if failure then
        replies[index] = { failure }
    else
        if op == REFUND or op == CHARGE then
            for part = 1, #limits do
                local limit = limits[part]
                local change = op == REFUND and limit.is.refund or limit.is.charge
                change(limit, limit.own or state, limit.at)
            end
        end
        -- Most replies have four numbers.
        local reply = { now, 0, 0, 0 }
        local size, is_admitted = tell(reply, 1)
        if op == TAKE and is_admitted then
            local count, taken = ARGV[1] ~= '' and counts[index] or 1, 0
            repeat
                for part = 1, #limits do
                    local limit = limits[part]
                    limit.is.take(limit, limit.own or state, limit.at)
                end
                taken = taken + 1
            until taken == count or not admits_all()
            if taken < count then
                reply[size + 1] = taken
                tell(reply, size + 1)
            end
        end
        -- Otherwise the time of a key that was set back would begin there again with each denial.
        if op ~= PEEK and (op ~= TAKE or is_admitted) or is_set_back then write(key) end
        replies[index] = reply
    end
end
return replies
