-- Executes the reports of a machine of a fleet on the records of their keys, in one step: what
-- `Batch::execute` does in Rust. Its files in src/store/fleet say why, in functions of the same names.
--
-- Numbers are integers below 2^53, which doubles divide exactly. Times are microseconds of the server's clock.
-- KEYS[1]: its name chooses the server; it has no value. KEYS[2]: the last sequence number of the machine.
--   KEYS[3..]: the records.
-- ARGV[1]: the sequence number of the batch. ARGV[2..]: packed doubles: the terms; the parts of the shape, eight
--   each; the report of each key.
-- Reply: the time; whether the batch was seen before, and how; then of each key its record, the units granted at
--   once, ahead, and in the next window, and in how many microseconds that begins.
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local format, match, rep, sub, numbers = string.format, string.match, string.rep, string.sub, struct.unpack
local decode = cjson.decode
local MAX_UNITS, MAX_TICKS, MAX_LEVEL, MAX_CELL = 2 ^ 32 - 1, 2 ^ 51, 2 ^ 53 - 1, 2 ^ 46 - 1
-- How time is divided into cells, if not evenly.
local WEIGHTED, CALENDAR = 1, 2
local NEVER, WHOLE, GAIN, MAX_DEMAND = MAX_LEVEL, 2 ^ 16, 4, 2 ^ 35
-- What is granted ahead of its time: what refills within an interval, or what is free in the next slot.
local REFILL, SLOT = 1, 2
local EIGHT, TWENTY = '<' .. rep('d', 8), '<' .. rep('d', 20)
-- `%d` is faster, and exact where a `long` has 64 bits.
local INTEGER = format('%d', MAX_LEVEL) == '9007199254740991' and '%d' or '%.0f'
local CELL, HEAD, GRANTS = ',' .. INTEGER, INTEGER .. rep(' ' .. INTEGER, 9), INTEGER .. rep(' ' .. INTEGER, 2)

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, life, machines, ahead_of_time, limit, limit_refill, record_ttl, sequence_ttl = numbers(EIGHT, ARGV[2])
-- The report of the key at hand.
local known_reset, spent1, at1, spent2, at2, epoch1, used1, returned1, epoch2, used2, returned2, demand, elapsed,
    waiting, has_next, next_returned, given_back, given_back_at, resets, dice
-- The record of the key at hand, and what is used of each part.
local at, reset, out, old_out, next, next_at, next_for, next_places, asked, last_asked
local used = {}

-- A level that costs raise and time lowers. What is used is a number of ticks; the layout says how many a
-- unit is worth.
local Level = {}
function Level.advance(part, ticks, from, to)
    return max(ticks - min(to - from, part.longest) * part.rate, 0)
end
function Level.charge(part, ticks, units) return min(ticks + units * part.layout, MAX_LEVEL) end
function Level.free_at(part, ticks, when)
    return floor((part.capacity * part.layout - Level.advance(part, ticks, at, when)) / part.layout)
end
function Level.ahead(part) return part.refill end
function Level.parse(counts) return counts == '' and 0 or tonumber(sub(counts, 2)) end
function Level.text(part, ticks) return part.start .. format(CELL, ticks) end
function Level.give_back(part, ticks, units, used_at)
    local drained = min(at - used_at, part.longest) * part.rate
    return max(ticks - max(min(units * part.layout, MAX_LEVEL) - drained, 0), 0)
end
-- Rounded up, in steps that stay below 2^53.
function Level.convert(part, is_level, layout, sum)
    if not is_level then return min(sum * part.layout, MAX_LEVEL) end
    local ticks, step, own_step = min(sum, MAX_LEVEL), ceil(layout / 2 ^ 20), ceil(part.layout / 2 ^ 31)
    local rest, all = ceil(ticks % layout / step), max(floor(layout / step), 1)
    rest = ceil(rest * ceil(part.layout / own_step) / all) * own_step
    return min(floor(ticks / layout) * part.layout + rest, MAX_LEVEL)
end

local function trim(cells)
    local count = #cells
    while cells[count] == 0 do cells[count], count = nil, count - 1 end
    return cells
end

-- Costs counted per cell of time. What is used is a list of counts, newest first, without zeros at its end.
local Cells = {}
local function cell(part, when)
    if part.division ~= CALENDAR then return floor((when + part.padding) / part.length) end
    return (when < part.padding and 0 or 1) + (when < part.padding + part.length and 0 or 1)
end
local function rest_of(part, when)
    if part.division ~= CALENDAR then return part.length - (when + part.padding) % part.length end
    local start, ends = part.padding, part.padding + part.length
    return when < start and start - when or when < ends and ends - when or part.length
end
local function sum_of(cells, first, last)
    local sum = 0
    for index = first, last do sum = sum + cells[index] end
    return sum
end
-- As of `when`, which is not before the time of the record.
local function sum_at(part, cells, when)
    local steps = cell(part, when) - cell(part, at)
    if part.division == WEIGHTED then
        local step = ceil(part.length / 2 ^ 20)
        local rest, all = ceil(rest_of(part, when) / step), ceil(part.length / step)
        return (cells[1 - steps] or 0) + ceil(min(cells[2 - steps] or 0, MAX_UNITS) * rest / all)
    end
    return sum_of(cells, 1, min(#cells, part.count - steps))
end
function Cells.free_at(part, cells, when) return part.capacity - sum_at(part, cells, when) end
function Cells.text(part, cells) return part.start .. format(rep(CELL, #cells), unpack(cells)) end
-- A zero and the counts, which begin with a comma each. JSON is the fastest to read here.
local function list_of(counts)
    local is_list, list = pcall(decode, '[0' .. counts .. ']')
    return is_list and list
end
function Cells.parse(counts)
    local cells = list_of(counts)
    return cells and table.remove(cells, 1) and trim(cells)
end
function Cells.convert(part, is_cells, layout, sum) return trim({ is_cells and sum or ceil(sum / layout) }) end
function Cells.advance(part, cells, from, to)
    local steps = min(cell(part, to) - cell(part, from), part.count)
    if steps == 0 or not cells[1] then return cells end
    for index = min(#cells + steps, part.count), steps + 1, -1 do cells[index] = cells[index - steps] end
    for index = 1, steps do cells[index] = 0 end
    return trim(cells)
end
-- In the cell of its use.
function Cells.charge(part, cells, units, used_at)
    local index = cell(part, at) - cell(part, used_at) + 1
    if index > part.count then return cells end
    for new = #cells + 1, index do cells[new] = 0 end
    cells[index] = min(cells[index] + units, MAX_CELL)
    return cells
end
function Cells.give_back(part, cells, units, used_at)
    local index = cell(part, at) - cell(part, used_at) + 1
    if cells[index] then cells[index] = max(cells[index] - units, 0) end
    return trim(cells)
end
function Cells.ahead(part, cells)
    if part.count == 1 then return 0 end
    local soon = at + floor(interval * 27 / 32)
    if part.division == WEIGHTED then
        return min(max(sum_at(part, cells, at) - sum_at(part, cells, soon), 0), part.refill)
    end
    local left = max(part.count - (cell(part, soon) - cell(part, at)), 0)
    return min(sum_of(cells, left + 1, #cells), part.refill)
end

local parts, fixed = {}, {}
for start = 1, #ARGV[3], 64 do
    local is_cells, layout, capacity, rate, refill, padding, count, division = numbers(EIGHT, ARGV[3], start)
    local letter = is_cells == 1 and 'c' or 'l'
    local name = format('%.0f', layout)
    local part = { kind = is_cells == 1 and Cells or Level, letter = letter, layout = layout, capacity = capacity,
        rate = rate, length = rate, refill = refill, padding = padding, count = count, division = division,
        longest = floor(MAX_TICKS / rate) + 1, name = name, start = ';' .. letter .. name }
    parts[#parts + 1] = part
    if count == 1 then fixed[#fixed + 1] = part end
end
local PARTS = #parts

local HEAD_PATTERN, PART_PATTERN = '^' .. rep('(%d+) ', 9) .. '(%d+);()', '^(%a)(%d+)([%d,]*);()'
-- Of a key never seen.
local function new_record()
    at, reset, out, old_out, next, next_at, next_for, next_places, asked, last_asked = now, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for index = 1, PARTS do used[index] = parts[index].kind == Level and 0 or {} end
    return true
end
-- Returns whether it is a record.
local function read(value)
    local text, place = value .. ';'
    at, reset, out, old_out, next, next_at, next_for, next_places, asked, last_asked, place = match(text, HEAD_PATTERN)
    if not at then return false end
    at, reset, out, old_out, next, next_at, next_for, next_places, asked, last_asked =
        at + 0, reset + 0, out + 0, old_out + 0, next + 0, next_at + 0, next_for + 0, next_places + 0, asked + 0,
        last_asked + 0
    for index = 1, PARTS do
        local part = parts[index]
        local letter, layout, counts, after = match(text, PART_PATTERN, place)
        if letter == part.letter and layout == part.name then
            used[index] = part.kind.parse(counts)
            if not used[index] then return false end
        elseif letter then
            local list = list_of(counts)
            if not list then return false end
            used[index] = part.kind.convert(part, letter == part.letter, max(layout + 0, 1), sum_of(list, 1, #list))
        elseif place <= #text then
            return false
        else
            used[index] = part.kind == Level and 0 or {}
        end
        place = after or place
    end
    return true
end
local function write()
    local text = format(HEAD, at, reset, out, old_out, next, next_at, next_for, next_places, asked, last_asked)
    for index = 1, PARTS do text = text .. parts[index].kind.text(parts[index], used[index]) end
    return text
end

-- Lets time pass up to `to`.
local function advance(to)
    if to <= at then return end
    for index = 1, PARTS do
        local part = parts[index]
        used[index] = part.kind.advance(part, used[index], at, to)
    end
    at = to
end
local function charge(units, when)
    if units == 0 then return end
    advance(when)
    for index = 1, PARTS do
        local part = parts[index]
        used[index] = part.kind.charge(part, used[index], units, when)
    end
end

-- Takes what has lapsed from what is out. Returns the time of the exchange, and what is to be charged.
local function settle()
    local lapsed1, lapsed2, ends = 0, 0, (floor(at / life) + 1) * life
    if now < at then
        if at - now <= interval then return at, 0, 0, 0 end
        lapsed1 = out + old_out
        out, old_out, next, next_at, next_for, next_places, asked, last_asked, at = 0, 0, 0, 0, 0, 0, 0, 0, now
        return now, lapsed1, 0, now
    end
    local passed = floor(now / interval) - floor(at / interval)
    if passed > 0 then asked, last_asked = 0, passed == 1 and asked or 0 end
    if now >= ends then lapsed1, out, old_out = old_out, 0, out end
    if now >= ends + life then lapsed2, out, old_out = old_out, 0, out end
    if next_at <= now then next, next_at, next_for, next_places = 0, 0, 0, 0 end
    return now, lapsed1, lapsed2, ends
end

-- Takes what is reported of a lot from what is out. Returns what is charged already.
local function settle_lot(age, of_lot, returned)
    if age == 0 then
        out = max(out - of_lot - returned, 0)
    elseif age == 1 then
        old_out = max(old_out - of_lot - returned, 0)
    else
        return of_lot
    end
    return 0
end

-- Notes the demand of a machine. Returns its share of the fleet's.
local function share_of()
    local least, last = ceil(WHOLE / machines), last_asked
    local span = min(max(elapsed, floor(interval / 2)), 2 * interval)
    local own = max(floor(min(demand, MAX_DEMAND) * floor(WHOLE * interval / span) / WHOLE), 1)
    asked = min(asked + own, MAX_DEMAND)
    return last == 0 and least or max(floor(own * WHOLE / max(own, last)), least)
end

-- The units of a part that are free at `when`, if all that is out is used and nothing else.
local function free_at(when, index)
    local part = parts[index]
    return part.kind.free_at(part, used[index], max(when, at)) - out - old_out
end
local function all_free_at(when)
    local free = NEVER
    for index = 1, PARTS do free = min(free, free_at(when, index)) end
    return max(free, 0)
end

-- Of the units out, those that may be used later do not count before; but all may be used then, and all places of
-- a slot may be granted.
local function grant(share)
    local free, refill, cap = NEVER, ahead_of_time == REFILL and NEVER or 0, 8 * demand + 8
    if last_asked > limit_refill then
        local usable = max(4 * (spent1 + spent2) + 8, floor(2 * limit / machines))
        share, cap = min(share * GAIN, WHOLE), min(usable, 2 * demand + 1)
    end
    for index = 1, PARTS do
        local part = parts[index]
        free = min(free, free_at(at, index) + next)
        if max(next, next_places) > 0 then
            free = min(free, free_at(next_at + next_for, index) - max(next_places - next, 0))
        end
        if refill > 0 then refill = min(refill, part.kind.ahead(part, used[index])) end
    end
    local most = max(free + refill, 0)
    local total = min(most, cap, floor((share * most + dice) / WHOLE))
    local at_once = min(total, ceil(share * max(free, 0) / WHOLE))
    if waiting <= most then total, at_once = max(total, waiting), max(at_once, waiting) end
    out = out + total
    return at_once, total - at_once
end

-- The end of the slot of `when`: slots are as long as an interval, and end with a window.
local function slot_end(when)
    local ends = when + interval - when % interval
    for index = 1, PARTS do
        if parts[index].division == WEIGHTED then ends = min(ends, when + rest_of(parts[index], when)) end
    end
    return ends
end

-- Whether a fixed window begins before the exchange after the next one. Makes it that of the record, unless units are
-- out that may be used from another moment on.
local function begin_window()
    local begins = 0
    for index = 1, #fixed do
        local ends = at + rest_of(fixed[index], at)
        if ends <= at + floor(interval * 8 / 5) then begins = max(begins, ends) end
    end
    if begins == 0 then return false end
    if next == 0 then next_at, next_for, next_places = begins, 0, 0 end
    return next_at == begins and next_for == 0
end

-- Makes the next slot that of the record, unless that has another. Returns whether it is.
local function begin_slot()
    local start = slot_end(at)
    local length = slot_end(start) - start
    if next_at == 0 then
        next_places, next_at, next_for = all_free_at(start + length), start, length
    end
    return start == next_at and length == next_for
end

-- Grants what is used later: in the next slot, or in a fixed window that begins soon.
local function grant_next(share)
    if has_next == 1 then return 0, 0 end
    local has_slots, begins = ahead_of_time == SLOT, false
    if has_slots then begins = last_asked > limit_refill and begin_slot() else begins = begin_window() end
    if not begins then return 0, 0 end
    local free = all_free_at(next_at + next_for)
    local all, left = limit, free
    if has_slots then all, left = next_places, max(next_places - next, 0) end
    -- Something was charged where places are.
    if left > free then return 0, 0 end
    local granted = min(left, floor((share * all + dice) / WHOLE))
    out, next = out + granted, next + granted
    return granted, granted > 0 and next_at - at or 0
end

local function exchange()
    local moment, lapsed1, lapsed2, ends = settle()
    -- The time of the record may be a little later than now.
    local late, is_current, units1, units2 = moment - now, known_reset >= reset, 0, 0
    local when1, when2 = min(at1 + late, moment), min(at2 + late, moment)
    if is_current and resets == 1 then
        new_record()
        at, lapsed1, lapsed2, known_reset = moment, 0, 0, max(moment, known_reset + 1)
    end
    if is_current then
        local epoch = floor(moment / life)
        reset = known_reset
        local charged = settle_lot(epoch - epoch1, used1, returned1) + settle_lot(epoch - epoch2, used2, returned2)
        -- Which places are free is not known.
        if next_returned > 0 then next, next_places = max(next - next_returned, 0), 0 end
        units1, units2 = max(spent1 - charged, 0), max(spent2 - max(charged - spent1, 0), 0)
    end
    if lapsed1 + lapsed2 == 0 and when1 <= when2 then
        charge(units1, when1)
        charge(units2, when2)
    else
        local charges = { { lapsed1, ends }, { lapsed2, ends + life }, { units1, when1 }, { units2, when2 } }
        table.sort(charges, function(a, b) return a[2] < b[2] end)
        for index = 1, 4 do charge(charges[index][1], charges[index][2]) end
    end
    advance(moment)
    if is_current and given_back > 0 then
        for index = 1, PARTS do
            local part = parts[index]
            used[index] = part.kind.give_back(part, used[index], given_back, min(given_back_at, at))
        end
    end
    local share = (demand > 0 or waiting > 0) and share_of()
    if not share or not is_current then return 0, 0, 0, 0 end
    local at_once, ahead = grant(share)
    return at_once, ahead, grant_next(share)
end

local seen, grants = call('GET', KEYS[2]) or '', { format('%s ' .. INTEGER, ARGV[1], floor(now / life)) }
local last = match(seen, '^(%d+) %d+;') or match(seen, '^(%d+) %d+$') or ''
-- Sequence numbers may be greater than 2^53.
local is_seen = #ARGV[1] < #last or #ARGV[1] == #last and ARGV[1] <= last
local reply, size, records = { now, is_seen and seen }, 2, {}
for index = 3, #KEYS do
    local value, at_once, ahead, of_next, next_in = call('GET', KEYS[index]), 0, 0, 0, 0
    known_reset, spent1, at1, spent2, at2, epoch1, used1, returned1, epoch2, used2, returned2, demand, elapsed,
        waiting, has_next, next_returned, given_back, given_back_at, resets, dice = numbers(TWENTY, ARGV[index + 1])
    if not is_seen and (value and read(value) or (not value or resets == 1) and new_record()) then
        at_once, ahead, of_next, next_in = exchange()
        value = write()
        records[index] = value
    end
    grants[index - 1] = format(GRANTS, at_once, ahead, of_next)
    reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4], reply[size + 5] =
        value, at_once, ahead, of_next, next_in
    size = size + 5
end
if not is_seen then call('PSETEX', KEYS[2], sequence_ttl, table.concat(grants, ';')) end
for index, record in pairs(records) do call('PSETEX', KEYS[index], record_ttl, record) end
return reply
