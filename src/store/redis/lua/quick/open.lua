-- The usual call (take, on a value of this policy that was not written in the future) is decided
-- before the rest of the script is made, which takes longer than a decision. It is written as the
-- rest decides it, without a function. What is not usual is left to the rest, in `left`.
local call, attempt, spread = redis.call, redis.pcall, unpack
local pack, unpack = struct.pack, struct.unpack
local sub, floor, words = string.sub, math.floor, unpack('<d', ARGV[1])
local TAKE, MOST = 1, 9007199254740991
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local answer, left = { now }, nil
local mine, differ = ARGV[2], #ARGV - 2 >= #KEYS
