-- Executes the reports of a machine of a fleet on the records of their keys, in one step: what
-- `Batch::execute` does in Rust. Its files in src/store/fleet say why, in functions of the same names.
--
-- Numbers are integers below 2^53, which doubles divide exactly. Times are microseconds of the server's clock.
-- KEYS[1]: its name chooses the server; it has no value. KEYS[2]: the last sequence number of the machine.
--   KEYS[3..]: the records.
-- ARGV[1]: the sequence number of the batch. ARGV[2], ARGV[3]: the terms, and the parts of the shape with a
--   semicolon after each, as `interval=1000`; zeros are left out. ARGV[4..]: the reports, as packed doubles.
-- Reply: the time; then of each key its record, the units granted at once, ahead, and in the next window,
--   and in how many microseconds that begins.
local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local format, gmatch, match, rep, tonumber = string.format, string.gmatch, string.match, string.rep, tonumber
local MAX_UNITS, MAX_TICKS, MAX_LEVEL, MAX_CELL = 2 ^ 32 - 1, 2 ^ 51, 2 ^ 53 - 1, 2 ^ 46 - 1
local NEVER, WHOLE, GAIN, MAX_DEMAND = MAX_LEVEL, 2 ^ 16, 4, 2 ^ 35
-- `%d` is faster, and exact where a `long` has 64 bits.
local INTEGER = format('%d', MAX_LEVEL) == '9007199254740991' and '%d' or '%.0f'
local HEAD_FORMAT, CELL_FORMAT = INTEGER .. rep(' ' .. INTEGER, 7), ' ' .. INTEGER

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local ZERO = { __index = function() return 0 end }
local function fields(text)
    local found = setmetatable({}, ZERO)
    for name, value in gmatch(text, '([%w_]+)=(%d+)') do found[name] = tonumber(value) end
    return found
end
local terms = fields(ARGV[2])
local interval, life = terms.interval, terms.life
-- The report of the key at hand.
local known_reset, spent1, at1, spent2, at2, epoch1, used1, returned1, epoch2, used2, returned2, demand, elapsed,
    waiting, has_next, next_returned, given_back, given_back_at, resets, dice
local REPORT = '<' .. rep('d', 20)
-- The numbers of a text, and their sum.
local function numbers_of(text)
    local numbers, count, sum = {}, 0, 0
    for number in gmatch(text, '%d+') do
        count, number = count + 1, tonumber(number)
        numbers[count], sum = number, sum + number
    end
    return numbers, sum
end

-- A level that costs raise and time lowers. What is used is a number of ticks; the layout says how many a
-- unit is worth.
local Level = {}
function Level:drained(from, to) return min(to - from, self.longest) * self.rate end
function Level:advance(ticks, from, to) return max(ticks - self:drained(from, to), 0) end
function Level:charge(ticks, units) return min(ticks + units * self.layout, MAX_LEVEL) end
function Level:free(ticks) return floor((self.capacity * self.layout - ticks) / self.layout) end
function Level:ahead() return self.refill end
function Level:fixed_end() return NEVER end
function Level:parse(counts) return tonumber(counts) or 0 end
function Level:text(ticks) return self.start .. format(CELL_FORMAT, ticks) end
function Level:give_back(ticks, units, used_at, at)
    return max(ticks - max(min(units * self.layout, MAX_LEVEL) - self:drained(used_at, at), 0), 0)
end
-- Rounded up, in steps that stay below 2^53.
function Level:convert(is_level, layout, sum)
    if not is_level then return min(sum * self.layout, MAX_LEVEL) end
    local ticks, step, own_step = min(sum, MAX_LEVEL), ceil(layout / 2 ^ 20), ceil(self.layout / 2 ^ 31)
    local part, all = ceil(ticks % layout / step), max(floor(layout / step), 1)
    part = ceil(part * ceil(self.layout / own_step) / all) * own_step
    return min(floor(ticks / layout) * self.layout + part, MAX_LEVEL)
end

local function trim(cells)
    while cells[#cells] == 0 do cells[#cells] = nil end
    return cells
end

-- Costs counted per cell of time. What is used is a list of counts, newest first, without zeros at its end.
local Cells = {}
function Cells:cell(at) return floor((at + self.padding) / self.length) end
function Cells:rest(at) return self.length - (at + self.padding) % self.length end
function Cells:free(cells, at) return self.capacity - self:sum(cells, at) end
function Cells:fixed_end(at) return self.count == 1 and at + self:rest(at) or NEVER end
function Cells:text(cells) return self.start .. format(rep(CELL_FORMAT, #cells), unpack(cells)) end
function Cells:parse(counts) return trim((numbers_of(counts))) end
function Cells:convert(is_cells, layout, sum) return trim({ is_cells and sum or ceil(sum / layout) }) end
function Cells:sum(cells, at)
    if self.weighted == 1 and cells[2] then
        local step = ceil(self.length / 2 ^ 20)
        local rest, all = ceil(self:rest(at) / step), ceil(self.length / step)
        return cells[1] + ceil(min(cells[2], MAX_UNITS) * rest / all)
    end
    local sum = 0
    for index = 1, #cells do sum = sum + cells[index] end
    return sum
end
function Cells:advance(cells, from, to)
    local steps = min(self:cell(to) - self:cell(from), self.count)
    if steps == 0 or not cells[1] then return cells end
    local moved = {}
    for index = 1, min(#cells + steps, self.count) do moved[index] = cells[index - steps] or 0 end
    return trim(moved)
end
function Cells:charge(cells, units)
    cells[1] = min((cells[1] or 0) + units, MAX_CELL)
    return cells
end
function Cells:give_back(cells, units, used_at, at)
    local index = self:cell(at) - self:cell(used_at) + 1
    if cells[index] then cells[index] = max(cells[index] - units, 0) end
    return trim(cells)
end
function Cells:ahead(cells, at, share)
    if self.count == 1 then return 0 end
    local later = self:advance(cells, at, at + interval)
    local freed = self:sum(cells, at) - self:sum(later, at + interval)
    local others = floor((WHOLE - share) * (WHOLE - share) / WHOLE)
    return floor(min(max(freed, 0), self.refill) * (WHOLE + others) / WHOLE)
end

local parts, has_fixed = {}, false
for kind, text in gmatch(ARGV[3], '(%a) ([^;]*);') do
    local part = fields(text)
    part.kind, part.name, part.start = kind, format('%.0f', part.layout), format(';%s%.0f', kind, part.layout)
    part.longest = floor(MAX_TICKS / part.rate) + 1
    has_fixed = has_fixed or part.count == 1
    for name, method in pairs(kind == 'l' and Level or Cells) do part[name] = method end
    parts[#parts + 1] = part
end

-- A record: its fields, and what is used of each part at the index of the part; nil if it is damaged.
local NEW, HEAD = format(INTEGER, now) .. rep(' 0', 7), '^' .. rep('(%d+) ', 7) .. '(%d+);()'
local PART = '^(%a)(%d+)([ %d]*);()'
local function read(value)
    local text = (value or NEW) .. ';'
    local at, reset, out, old_out, next, next_at, asked, last, place = match(text, HEAD)
    if not at then return nil end
    local record = { at = tonumber(at), reset = tonumber(reset), out = tonumber(out), old_out = tonumber(old_out),
        next = tonumber(next), next_at = tonumber(next_at), demand = tonumber(asked), last_demand = tonumber(last) }
    for index = 1, #parts do
        local part = parts[index]
        local kind, layout, counts, after = match(text, PART, place)
        if not kind and place <= #text then return nil end
        local is_own = not kind or kind == part.kind and layout == part.name
        record[index] = is_own and part:parse(counts or '')
            or part:convert(kind == part.kind, max(tonumber(layout), 1), select(2, numbers_of(counts)))
        place = after or place
    end
    return record
end

local function write(record)
    local text = format(HEAD_FORMAT, record.at, record.reset, record.out,
        record.old_out, record.next, record.next_at, record.demand, record.last_demand)
    for index = 1, #parts do text = text .. parts[index]:text(record[index]) end
    return text
end
-- Lets time pass up to `to`.
local function advance(record, to)
    if to <= record.at then return end
    for index = 1, #parts do record[index] = parts[index]:advance(record[index], record.at, to) end
    record.at = to
end

local function add_charge(charges, units, at)
    if units > 0 then charges[#charges + 1] = { units = units, at = at } end
end

-- Takes what has lapsed from what is out, and charges it. Returns the time of the exchange.
local function settle(record, charges)
    local at = record.at
    if now < at and at - now <= interval then return at end
    if now < at then
        add_charge(charges, record.out + record.old_out, now)
        record.out, record.old_out, record.next, record.next_at, record.at = 0, 0, 0, 0, now
        record.demand, record.last_demand = 0, 0
        return now
    end
    local passed = floor(now / interval) - floor(at / interval)
    if passed > 0 then record.demand, record.last_demand = 0, passed == 1 and record.demand or 0 end
    for epoch = floor(at / life) + 1, min(floor(at / life) + 2, floor(now / life)) do
        add_charge(charges, record.old_out, epoch * life)
        record.out, record.old_out = 0, record.out
    end
    if record.next_at <= now then record.next, record.next_at = 0, 0 end
    return now
end

-- Takes what is reported of a lot from what is out. Returns what is charged already.
local function settle_lot(record, age, used, returned)
    if age ~= 0 and age ~= 1 then return used end
    local out = age == 0 and 'out' or 'old_out'
    record[out] = max(record[out] - used - returned, 0)
    return 0
end

-- Takes what is reported from what is out, and charges it if it is not charged already.
local function settle_report(record, charges, at)
    local epoch = floor(at / life)
    local charged = settle_lot(record, epoch - epoch1, used1, returned1)
        + settle_lot(record, epoch - epoch2, used2, returned2)
    record.next = max(record.next - next_returned, 0)
    add_charge(charges, spent1 - charged, min(at1, at))
    add_charge(charges, spent2 - max(charged - spent1, 0), min(at2, at))
end

-- Notes the demand of a machine. Returns its share of the fleet's.
local function share_of(record)
    local least, last = ceil(WHOLE / terms.machines), record.last_demand
    local span = min(max(elapsed, floor(interval / 2)), 2 * interval)
    local asked = max(floor(min(demand, MAX_DEMAND) * floor(WHOLE * interval / span) / WHOLE), 1)
    record.demand = min(record.demand + asked, MAX_DEMAND)
    return last == 0 and least or max(floor(asked * WHOLE / max(asked, last)), least)
end

-- Of the units out, those of the next window do not count in this one, but all may be used in the next one.
local function grant(record, share)
    local at, out, free, refill, cap = record.at, record.out + record.old_out, NEVER, terms.ahead * NEVER, 8 * demand + 8
    if record.last_demand > terms.refill then
        local usable = max(4 * (spent1 + spent2) + 8, floor(2 * terms.capacity / terms.machines))
        share, cap = min(share * GAIN, WHOLE), min(usable, 2 * demand + 1)
    end
    for index = 1, #parts do
        local part, used = parts[index], record[index]
        local rest = part:free(used, at) - out
        if record.next > 0 and record.next_at >= part:fixed_end(at) then
            rest = min(rest + record.next, part.capacity - out)
        end
        free, refill = min(free, rest), refill > 0 and min(refill, part:ahead(used, at, share)) or 0
    end
    local most = max(free + refill, 0)
    local total = min(most, cap, floor((share * most + dice) / WHOLE))
    local at_once = min(total, ceil(share * max(free, 0) / WHOLE))
    if waiting <= most then total, at_once = max(total, waiting), max(at_once, waiting) end
    record.out = record.out + total
    return at_once, total - at_once
end

-- Grants of a window that begins before the exchange after the next one.
local function grant_next(record, share)
    local at, next_at, free = record.at, 0, NEVER
    for index = 1, #parts do
        local ends = parts[index]:fixed_end(at)
        if ends <= at + floor(interval * 8 / 5) then next_at = max(next_at, ends) end
    end
    if next_at == 0 or has_next == 1 then return 0, 0 end
    next_at = max(next_at, record.next_at)
    for index = 1, #parts do
        local part = parts[index]
        free = min(free, part:fixed_end(at) <= next_at and part.capacity or part:free(record[index], at))
    end
    free = max(free - record.out - record.old_out, 0)
    local next = min(free, floor((share * terms.capacity + dice) / WHOLE))
    if next == 0 then return 0, 0 end
    record.out, record.next, record.next_at = record.out + next, record.next + next, next_at
    return next, next_at - at
end

local function exchange(record)
    local charges = {}
    local at, is_current = settle(record, charges), known_reset >= record.reset
    if is_current then
        record.reset = known_reset
        settle_report(record, charges, at)
    end
    if charges[2] then table.sort(charges, function(a, b) return a.at < b.at end) end
    for _, charge in ipairs(charges) do
        advance(record, charge.at)
        for index = 1, #parts do record[index] = parts[index]:charge(record[index], charge.units) end
    end
    advance(record, at)
    for index = 1, is_current and given_back > 0 and #parts or 0 do
        record[index] = parts[index]:give_back(record[index], given_back, min(given_back_at, at), at)
    end
    if is_current and resets == 1 then
        local reset = max(at, record.reset + 1)
        record = read(nil)
        record.at, record.reset = at, reset
    end
    local at_once, ahead, next, next_in = 0, 0, 0, 0
    local share = (demand > 0 or waiting > 0) and share_of(record)
    if share and is_current then
        at_once, ahead = grant(record, share)
        if has_fixed then next, next_in = grant_next(record, share) end
    end
    return write(record), at_once, ahead, next, next_in
end

local seen, grants = call('GET', KEYS[2]) or '', { format('%s ' .. INTEGER, ARGV[1], floor(now / life)) }
local last = match(seen, '^(%d+) %d+;') or match(seen, '^(%d+) %d+$') or ''
-- Sequence numbers may be greater than 2^53.
local is_seen = #ARGV[1] < #last or #ARGV[1] == #last and ARGV[1] <= last
local reply, written, GRANTS = { now, is_seen and seen }, {}, INTEGER .. rep(CELL_FORMAT, 2)
for index = 3, #KEYS do
    local value = call('GET', KEYS[index])
    known_reset, spent1, at1, spent2, at2, epoch1, used1, returned1, epoch2, used2, returned2, demand, elapsed,
        waiting, has_next, next_returned, given_back, given_back_at, resets, dice =
        struct.unpack(REPORT, ARGV[index + 1])
    local record = not is_seen and (read(value) or resets == 1 and read(nil))
    local key = record and { exchange(record) } or { value, 0, 0, 0, 0 }
    reply[index], written[index] = key, record and key[1] or nil
    grants[index - 1] = format(GRANTS, key[2], key[3], key[4])
end
if not is_seen then call('PSETEX', KEYS[2], terms.sequence_ttl, table.concat(grants, ';')) end
for index, record in pairs(written) do call('PSETEX', KEYS[index], terms.record_ttl, record) end
return reply
