-- The fast path decides common calls: a take, on a value of this configuration at the key itself
-- that is not dated in the future, or on no value. Building the functions of the full path takes
-- longer than a decision, so the fast path runs before them. Calls that it cannot decide are left
-- `undecided` for the full path.
local own_header, args_differ = ARGV[2], #ARGV - 2 >= #KEYS
local header_len, state_words = #own_header, unpack('<d', ARGV[1])
