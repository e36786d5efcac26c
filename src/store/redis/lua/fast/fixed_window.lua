local limit_N, length_N, pad_N, anchored_N = unpack('<dddd', ARGV[1], PARAMS)
anchored_N = anchored_N == 1
local value_len_N = header_len_N + 16
local fresh_N, oldest_N = fixed_window_at(length_N, pad_N, anchored_N)
local cost_N
-- Arguments.
cost_N, arg_offset = unpack('<d', args, arg_offset)
-- Decision.
local window, used = fresh_N, 0
if value then
    window, used = unpack('<dd', value, header_len_N + 1)
    is_fast = window <= fresh_N
    if window < oldest_N then
        window, used = fresh_N, 0
    end
end
admitted = used + cost_N <= limit_N
reply[place], reply[place + 1] = window, used
place = place + 2
if admitted then
    value_N = header_N .. pack('<dd', window, used + cost_N)
    ttl_N = ttl_ms(fixed_window_end(window, length_N, pad_N, anchored_N))
end
