local limit_N, length_N, pad_N = unpack('<ddd', ARGV[1], PARAMS)
local value_len_N = header_len_N + 24
local window_N, elapsed_N = sliding_window_at(length_N, pad_N)
local cost_N
-- Arguments.
cost_N, arg_offset = unpack('<d', args, arg_offset)
-- Decision.
local previous, current = 0, 0
if value then
    local window
    window, previous, current = unpack('<ddd', value, header_len_N + 1)
    is_fast = window <= window_N
    if window < window_N then
        previous, current = sliding_window_carry(window, window_N, current)
    end
end
admitted = sliding_window_admits(previous, current, cost_N, limit_N, length_N, elapsed_N)
is_fast = is_fast and admitted ~= nil
reply[place], reply[place + 1], reply[place + 2] = window_N, previous, current
place = place + 3
if admitted then
    value_N = header_N .. pack('<ddd', window_N, previous, current + cost_N)
    ttl_N = ttl_ms(sliding_window_end(window_N, length_N, pad_N))
end
