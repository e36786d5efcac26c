-- Every script begins with this file and configurations.lua, and ends with decide.lua. Between them are the files of
-- its limits. To run a script by hand, for one of the five units that the key 7 has per minute:
--
--   cat common.lua configurations.lua fixed_window.lua decide.lua > limit.lua
--   redis-cli --eval limit.lua '{throttle:api:7}' , '[["~f60000000.0.0;", 5, 60000000, 0, 0]]' '[1, [[1]]]'
--
-- KEYS: per call, one key per limit. A script touches no other key.
-- ARGV[1]: JSON: per limit, the header of its values and its parameters.
-- ARGV[2..]: JSON: per call, the operation, and the arguments of each limit; then, if the key has a quota of its
--   own, what ARGV[1] would be for that, and the units of the call. All calls have the same if there is only one of
--   these.
-- Reply: the time, then per call its status and the numbers of its state.
--
-- Numbers are doubles, which represent integers exactly up to 2^53. Scripts only compare, add and
-- divide integers below that bound. Larger products go through bignum.lua. Times are microseconds
-- since 1970 on the server's clock.
--
-- A stored value is a header, which names the algorithm and its parameters, followed by the state
-- as packed doubles. Headers of different algorithms begin with different letters. configurations.lua describes
-- the value of a key that machines with different configurations share.
local TAKE, PEEK, REFUND, CHARGE, RESET = 1, 2, 3, 4, 5
local DENIED, DONE, CORRUPT, WRONG_TYPE = 0, 1, 2, 3
-- A refund says when its cost was taken, or MAX_INT for now. What time has returned since then is
-- not returned again.
--
-- Counts and times saturate here.
local MAX_INT = 9007199254740991
-- How much longer than its state a key lives, in milliseconds. So the key of a bucket in use does not disappear
-- between two calls.
local LINGER_MS = 1000

-- The clock is read once per script call.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- What makes a limit of its header and its parameters, by the letter in the header. A limit is a function of a key,
-- an operation and its arguments, which returns whether the limit admits the call, and an error. `commit` is
-- whether a cost that is admitted is also taken; nothing is written if it is nil.
local algorithms = {}
-- The reply on the call at hand, to which a limit adds the state that it decided on, or that it left if it
-- decided nothing.
local reply
-- What the key at hand holds of other configurations; nil if it has none.
local configurations

-- The units of the call at hand, if its key has a quota of its own.
local units
-- By the letter in a header: what counts the call under another quota of the key. It gets the header, the numbers
-- in it, the arguments of the call, and until when that quota is kept. It returns the limit, and its arguments.
local others = {}

local function letter_of(header)
    return string.sub(header, 2, 2)
end

local function push_reply(number)
    reply[#reply + 1] = number
end

-- Exact, because fmod is.
local function quotient(a, b)
    return (a - math.fmod(a, b)) / b
end

-- An error that GET or GETRANGE returned for a key. Any other error than a wrong type ends the
-- script, so that the client learns its text.
local function read_error(value)
    if string.find(value.err, 'WRONGTYPE', 1, true) then
        return WRONG_TYPE
    end
    return error(value.err)
end

-- Time to live of a state that decides like a fresh one from `unused_at` on.
local function ttl_ms(unused_at)
    return math.ceil((unused_at - now) / 1000) + LINGER_MS
end

-- Whether a state has the length that its algorithm expects: `state_len` bytes, and then any number of entries
-- of `entry_len` bytes.
local function has_len(length, state_len, entry_len)
    local rest = length - state_len
    return rest == 0 or entry_len and rest > 0 and math.fmod(rest, entry_len) == 0
end

-- The numbers in a header.
local function header_params(header)
    local params = {}
    for param in string.gmatch(header, '%d+') do
        params[#params + 1] = tonumber(param)
    end
    return params
end
