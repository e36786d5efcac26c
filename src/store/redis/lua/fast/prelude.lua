-- The fast path decides common calls: a take, on values of this configuration at the keys themselves
-- that are not dated in the future, or on no values. Building the functions of the full path takes
-- longer than a decision, so the fast path runs before them, and has no functions of its own. Calls
-- that it cannot decide are left `undecided` for the full path.
--
-- fast.rs generates it from the files of the limits. A name in them that ends in `_N` gets the number
-- of the limit. The frame of all limits is in once.lua, limit.lua and write.lua. A limit adds:
--
-- Parameters, and what is computed of them once.
-- Arguments of a call, and what is computed of them when they change.
-- State: the numbers of a stored value, in locals that are nil if there is no `value`, and the
--   decision, which sets `admitted`. It sets `is_fast` to false if it cannot decide.
-- Reply: the numbers of the state that the client gets.
-- Next: the numbers of the state if the call is admitted.
-- Unused at: when that state decides like a fresh one.
local state_words = unpack('<d', ARGV[1])
local last_args, op, arg_offset
