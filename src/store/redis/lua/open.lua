-- Every script begins with this.
--
-- Numbers are doubles, which hold whole numbers exactly up to 2^53. A script only ever compares,
-- adds and takes quotients of whole numbers below that; products that may be larger go through
-- exact.lua. Times are microseconds since 1970 on the server's clock.
--
-- ARGV: as packed doubles how many numbers a state is told in and the figures of each part; the
-- header of each part; then for each call, as packed doubles, the operation and the arguments of
-- each part, or only once if all calls are alike. KEYS: for each call one key a part.
-- Answer: as packed doubles the time, then for each call how it went and the numbers of its state; in
-- a list of texts where they are very many.
--
-- A value is a header, which names the algorithm and the figures it was made for, and then the
-- state as packed doubles. The header of one algorithm never begins as that of another.
local TAKE, PEEK, REFUND, ABSORB, RESET = 1, 2, 3, 4, 5
local DENIED, DONE, CORRUPT, WRONG_TYPE = 0, 1, 2, 3
-- Counts and times stop here.
local MOST = 9007199254740991

local spread = spread or unpack
local call, attempt, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, ceil, fmod, max, min = math.floor, math.ceil, math.fmod, math.max, math.min
local sub, find, match, gmatch, rep = string.sub, string.find, string.match, string.gmatch, string.rep

local function unpacked(numbers)
    return { unpack('<' .. rep('d', #numbers / 8), numbers) }
end
-- The next header, and the next of the figures or of the arguments of a call.
local given, numbers, read = 1, unpacked(ARGV[1]), 0
local function text()
    given = given + 1
    return ARGV[given]
end
local function number()
    read = read + 1
    return numbers[read]
end

local said = 0
local function say(value)
    said = said + 1
    answer[said] = value
end

-- The clock is read once, whatever the number of calls.
local clock = clock or call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Exact: fmod is.
local function quotient(a, b)
    return (a - fmod(a, b)) / b
end

-- What is wrong with a value that is not ours.
local function fault(value)
    return type(value) == 'table' and WRONG_TYPE or CORRUPT
end

-- The figures in the header of a value of the same algorithm, and where its state begins. Nothing
-- for a header of another algorithm: the policy was changed and begins anew. False for no header.
local function header(value, mine)
    local _, last = find(value, '^~%a[%d ]*\n')
    if not last then
        return false
    elseif sub(value, 2, 2) ~= sub(mine, 2, 2) then
        return nil
    end
    local figures = {}
    for figure in gmatch(sub(value, 3, last), '%d+') do
        figures[#figures + 1] = tonumber(figure)
    end
    return figures, last + 1
end

-- Writes a state that decides like a fresh one from `forgettable` on. The server counts
-- milliseconds: one is begun, and one more may be begun before the server counts from it.
local function keep(key, value, forgettable)
    if forgettable <= now then
        call('DEL', key)
    else
        call('PSETEX', key, floor((forgettable - now) / 1000) + 2, value)
    end
end
