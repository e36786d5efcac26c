-- Every script begins with this file.
--
-- Script = common.lua, the fast path (fast/prelude.lua, fast/single.lua, fast/batch.lua) if all limits
-- have one, the functions that it shares with the full path, prelude.lua, one constructor per kind of
-- limit, epilogue.lua.
--
-- Numbers are doubles, which represent integers exactly up to 2^53. Scripts only compare, add and
-- divide integers below that bound. Larger products go through bignum.lua. Times are microseconds
-- since 1970 on the server's clock.
--
-- KEYS: per call, one key per limit. A script touches no other key.
-- ARGV[1]: packed doubles: how many numbers the state of a call has, then the parameters of each
--   limit.
-- ARGV[2..]: the header of each limit; then per call, as packed doubles, the operation and the
--   arguments of each limit. Calls with equal arguments pass them once if their keys differ.
-- Reply: packed doubles: the time, then per call its status and the numbers of its state. A large
--   reply is a list of such strings.
--
-- A stored value is a header, which names the algorithm and its parameters, followed by the state
-- as packed doubles. Headers of different algorithms begin with different letters.
--
-- Machines with different configurations may share a key, as in a rolling deploy. Each
-- configuration has a state of its own, so together they admit at most the sum of what each
-- promises. A configuration that has no state yet takes over the usage of the newest one, once. The
-- value of a key that has several is `~&`, and for each of them, the newest last: two packed doubles,
-- until when it is kept and the length of its value, and its value. One whose state was removed has a
-- value without a state.
local TAKE, PEEK, REFUND, CHARGE, RESET = 1, 2, 3, 4, 5
local DENIED, DONE, CORRUPT, WRONG_TYPE = 0, 1, 2, 3
-- A refund says when its cost was taken, or MAX_INT for now. What time has returned since then is
-- not returned again.
--
-- Counts and times saturate here.
local MAX_INT = 9007199254740991

local call, try_call, pack, unpack, unpack_table =
    redis.call, redis.pcall, struct.pack, struct.unpack, unpack
local floor, fmod, sub, find = math.floor, math.fmod, string.sub, string.find
-- Locals are read faster than globals.
local KEYS, ARGV = KEYS, ARGV

-- Keys expire at the ends of periods of so many microseconds: see `ttl_ms`.
local EXPIRY_PERIOD = 1048576

-- The clock is read once per script call.
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- The numbers of the reply, and by index whether a call is left for the full path.
local reply, undecided
