-- The fast path decides common calls: a take, on values of this configuration at the keys themselves
-- that are not dated in the future, or on no values. Building the functions of the full path takes
-- longer than a decision, so the fast path runs before them, and has no functions of its own. Calls
-- that it cannot decide are left `undecided` for the full path.
--
-- script.rs generates it from the files of the limits. A name in them that ends in `_N` gets the
-- number of the limit, and PARAMS is where its parameters begin. A file has three sections: what is
-- read once, what is read when the arguments change, and the decision of a call on `value`. A
-- decision sets `is_fast` and `admitted`, writes the state to the reply, moves `place` behind it, and
-- if it admits sets `value_N` and `ttl_N`.
local state_words = unpack('<d', ARGV[1])
local last_args, op, arg_offset
