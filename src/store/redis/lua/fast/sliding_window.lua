-- Parameters: limit, length, pad
local window_N, elapsed_N = sliding_window_at(length_N, pad_N)
-- Arguments: cost
-- State: window, previous, current
if not value then
    previous, current = 0, 0
elseif window < window_N then
    previous, current = sliding_window_carry(window, window_N, current)
end
admitted = sliding_window_admits(previous, current, cost_N, limit_N, length_N, elapsed_N)
is_fast = admitted ~= nil and (not value or window <= window_N)
-- Reply: window_N, previous, current
-- Next: window_N, previous, current + cost_N
-- Unused at: sliding_window_end(window_N, length_N, pad_N)
-- Same expiry: value and window == window_N
