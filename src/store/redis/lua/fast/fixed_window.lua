-- Parameters: limit, length, pad, anchored
anchored_N = anchored_N == 1
local fresh_N, oldest_N = fixed_window_at(length_N, pad_N, anchored_N)
-- Arguments: cost
-- State: window, used
is_fast = not value or window <= fresh_N
local is_open = value and window >= oldest_N
if not is_open then
    window, used = fresh_N, 0
end
admitted = used + cost_N <= limit_N
-- Reply: window, used
-- Next: window, used + cost_N
-- Unused at: fixed_window_end(window, length_N, pad_N, anchored_N)
-- Same expiry: is_open
