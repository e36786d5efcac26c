local header_N = ARGV[1 + NUMBER]
local header_len_N, value_N, ttl_N, text_ttl_N, text_N, offset_N = #header_N
local value_len_N = header_len_N + 8 * STATE_LEN
local PARAMETERS = unpack('<PARAMETER_DOUBLES', ARGV[1], PARAMS)
local ARGUMENTS
