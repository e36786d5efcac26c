-- Executes the reports of a machine of a fleet on the records of their keys, in one step: what
-- `Batch::execute` does in Rust. Its files in src/store/fleet say why, in functions of the same names.
--
-- Times are microseconds of the server's clock.
-- KEYS[1]: the last batch of the machine. KEYS[2..]: the records.
-- ARGV[1]: packed doubles: the sequence number of the batch and what the machine has set, then of each part of the limit
--   seven. ARGV[2..]: the report of each key.
-- Reply: the time; the last batch of the machine, which is this one or a later one; the records.
local call, floor, max, min = redis.call, math.floor, math.max, math.min
local format, match, rep, unpacked, decode = string.format, string.match, string.rep, struct.unpack, cjson.decode
local MAX_USED, MAX_DEMAND, GAIN, MEMORY, SCALE, PATIENCE = 2 ^ 46 - 1, 2 ^ 35, 8, 4, 64, 1000000
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local sequence, interval, life, is_ahead, record_ttl, sequence_ttl = unpacked('<' .. rep('d', 6), ARGV[1])
-- The record of the key at hand, and what is used of each part.
local at, epoch, ends, length, out, before, asked, full_at
local used = {}

local Level = {}
function Level.unused() return { 0, 0 } end
function Level.is_valid(part, list) return #list == 2 and list[2] < part.period end
function Level.advance(part, list, from, to)
    local units, rest = drain(part, list[1], list[2], to - from)
    return { units, rest }
end
function Level.charge(_, list, units) list[1] = min(list[1] + units, MAX_USED) end
function Level.give_back(part, list, units, used_at)
    local left, left_rest = drain(part, min(units, MAX_USED), 0, at - used_at)
    units, left_rest = list[1] - left, list[2] - left_rest
    if left_rest < 0 then units, left_rest = units - 1, left_rest + part.period end
    if units < 0 then units, left_rest = 0, 0 end
    list[1], list[2] = units, left_rest
end
function Level.taken(_, list) return list[1] + (list[2] > 0 and 1 or 0) end
function Level.ahead(part, _, span) return span > 0 and part.refill or 0 end
function Level.drains_in(part, units)
    local span = mul_div(units, part.period, part.rate)
    return min(span + 1, 2 ^ 50)
end

-- Costs counted per cell of time, newest first, without zeros at the end.
local Cells = {}
local function cell(part, moment)
    if part.form ~= 1 then return floor((moment + part.padding) / part.length) end
    return (moment < part.padding and 0 or 1) + (moment < part.padding + part.length and 0 or 1)
end
local function trim(list)
    local count = #list
    while list[count] == 0 do list[count], count = nil, count - 1 end
end
function Cells.unused() return {} end
function Cells.is_valid(part, list) return #list <= part.count end
function Cells.advance(part, list, from, to)
    local steps = min(cell(part, to) - cell(part, from), part.count)
    if steps > 0 then
        for index = min(#list + steps, part.count), steps + 1, -1 do list[index] = list[index - steps] end
        for index = 1, steps do list[index] = 0 end
    end
    trim(list)
    return list
end
-- In the cell of its use.
function Cells.charge(part, list, units, used_at)
    local index = max(cell(part, at) - cell(part, used_at), 0) + 1
    if index > part.count then return end
    for new = #list + 1, index do list[new] = 0 end
    list[index] = min(list[index] + units, MAX_USED)
end
function Cells.give_back(part, list, units, used_at)
    local index = max(cell(part, at) - cell(part, used_at), 0) + 1
    if list[index] then list[index] = max(list[index] - units, 0) end
    trim(list)
end
function Cells.drains_in() return 0 end
local function rest(part, moment) return part.length - fmod(moment + part.padding, part.length) end
function Cells.taken(part, list, moment)
    local sum, previous = 0, part.form == 2 and list[2] or 0
    for index = 1, #list do sum = sum + list[index] end
    return sum - previous + mul_div(previous, rest(part, moment), part.length)
end
function Cells.ahead(part, list, span)
    local later = at + (part.form == 2 and min(span, rest(part, at) - 1) or span)
    local left = Cells.advance(part, { unpack(list) }, at, later)
    return Cells.taken(part, list, at) - Cells.taken(part, left, later)
end

local parts = {}
for start = 49, #ARGV[1], 56 do
    local is_cells, limit, refill, rate, period, count, form = unpacked('<' .. rep('d', 7), ARGV[1], start)
    parts[#parts + 1] = { kind = is_cells == 1 and Cells or Level, limit = limit, refill = refill, rate = rate,
        period = period, length = rate, padding = period, count = count, form = form }
end

local function new_record(moment)
    at, epoch, ends, length, out, before, asked, full_at = moment, moment, moment + life, life, 0, 0, 0, moment
    for index, part in ipairs(parts) do used[index] = part.kind.unused() end
    return true
end
local function text_of(list)
    return format(#list > 0 and '%d' .. rep(',%d', #list - 1) or '', unpack(list))
end
-- Returns whether it is a record.
local function read(value)
    local text, place, head = value .. ';', 1, nil
    for index = 0, #parts do
        local numbers, after = match(text, '^([%d,]*);()', place)
        -- JSON is the fastest to read here.
        local is_list, list = pcall(decode, '[' .. (numbers or 'none') .. ']')
        if not is_list or index > 0 and not parts[index].kind.is_valid(parts[index], list) then return false end
        if index == 0 then head = list else used[index] = list end
        place = after
    end
    at, epoch, ends, length, out, before, asked, full_at = unpack(head)
    return #head == 8 and place > #text
end
local function write()
    local text = text_of({ at, epoch, ends, length, out, before, asked, full_at })
    for index = 1, #parts do text = text .. ';' .. text_of(used[index]) end
    return text
end

-- Lets time pass up to `to`.
local function advance(to)
    if to <= at then return end
    for index, part in ipairs(parts) do used[index] = part.kind.advance(part, used[index], at, to) end
    at = to
end
local function charge(units, moment)
    if units == 0 then return end
    advance(moment)
    for index, part in ipairs(parts) do part.kind.charge(part, used[index], units, moment) end
end

-- Charges what has lapsed. Returns the time of the exchange.
local function settle()
    if now + PATIENCE < at then
        local lapsed = out + before
        full_at = max(full_at + now - at, 0)
        out, before, at, epoch, ends, length = 0, 0, now, epoch + 2, now + life, life
        charge(lapsed, now)
    end
    local moment = max(now, at)
    for _ = 1, 2 do
        if moment >= ends then
            charge(before, ends)
            out, before, epoch, ends, length = 0, out, epoch + 1, ends + length, life
        end
    end
    if moment >= ends then ends = moment + life end
    if moment >= full_at then
        for index, part in ipairs(parts) do
            if part.kind == Level then used[index] = Level.unused() end
        end
    end
    return moment
end

local function extend(units)
    local from, all, more = out + before > 0 and ends + length or at, 0, 0
    for index, part in ipairs(parts) do
        all = max(all, part.kind.drains_in(part, part.kind.taken(part, used[index], at) + out + before))
        more = max(more, part.kind.drains_in(part, units))
    end
    full_at = min(from + all, max(full_at, from) + more)
end

local function grant(demand, waiting, elapsed)
    length = max(length, life)
    demand = min(demand, MAX_DEMAND)
    local memory = MEMORY * interval
    asked = min(mul_div(asked, memory, memory + elapsed) + SCALE * demand, MAX_USED)
    if demand == 0 and waiting == 0 then return 0 end
    local most, refill, span = MAX_INT, MAX_INT, 0
    if is_ahead == 1 then span = interval elseif #parts == 1 and parts[1].kind == Cells then span = min(elapsed, interval) end
    for index, part in ipairs(parts) do
        local ahead = min(part.kind.ahead(part, used[index], span), part.refill)
        most = min(most, part.limit - part.kind.taken(part, used[index], at) - out - before + ahead)
        refill = min(refill, part.refill)
    end
    most = max(most, 0)
    local share = mul_div(most + refill, MEMORY * SCALE * demand, max(asked, 1))
    local units = min(max(share, floor(most / 8)), most - floor(most / 4), GAIN * demand + GAIN)
    -- Who waits for more than is free gets something at least: else it would ask again and again.
    units = max(units, waiting <= most and waiting or min(most, 1))
    out = out + units
    return units
end

local function exchange(report, is_unsure)
    local known, units, kept, returned, charged, used_at, demand, waiting, given_back, given_back_at, resets =
        unpacked('<' .. rep('d', 11), report)
    if is_unsure then charged, units, returned, given_back = charged + units, 0, 0, 0 end
    local last = at
    local moment, keeps = settle(), 0
    if resets == 1 then
        local first = epoch + 2
        new_record(moment)
        epoch = first
    end
    if known == epoch then
        out, keeps = max(out - units - kept - returned, 0) + kept, 1
    elseif known == epoch - 1 then
        before, out, keeps = max(before - units - kept - returned, 0), out + kept, 1
    end
    charge(units * keeps + charged, min(used_at + moment - now, moment))
    advance(moment)
    for index, part in ipairs(parts) do
        part.kind.give_back(part, used[index], given_back, min(given_back_at, moment))
    end
    units = grant(demand, waiting, max(moment - last, 0))
    extend(units + kept + charged)
    return units, keeps
end

-- Of another type it is no record.
local function get(key)
    local value = redis.pcall('GET', key)
    if type(value) ~= 'table' then return value end
    return string.find(value.err, 'WRONGTYPE', 1, true) and '' or error(value.err)
end
local seen = get(KEYS[1]) or ''
local last = tonumber(match(seen .. ';', '^(%d+);'))
local is_seen = last and last >= sequence
local grants, records, written = { text_of({ sequence }) }, {}, {}
for index = 2, #KEYS do
    local value, units, keeps, granted = get(KEYS[index]), 0, 0, 0
    local report = ARGV[index]
    local resets = unpacked('<d', report, 81)
    if not is_seen and (value and read(value) or (not value or resets == 1) and new_record(now)) then
        units, keeps = exchange(report, not last and sequence > 1)
        value, granted = write(), epoch
        written[KEYS[index]] = value
    end
    grants[index], records[index - 1] = text_of({ granted, units, keeps }), value
end
if not is_seen then
    seen = table.concat(grants, ';')
    call('PSETEX', KEYS[1], sequence_ttl, seen)
end
for key, record in pairs(written) do call('PSETEX', key, record_ttl, record) end
return { now, seen, records }
