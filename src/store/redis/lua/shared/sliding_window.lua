-- The window of `now`, and how far into it `now` is.
local function sliding_window_at(length, pad)
    local elapsed = fmod(now + pad, length)
    return (now + pad - elapsed) / length, elapsed
end
-- The counts of a window of `count` units as seen from a later one.
local function sliding_window_carry(window, current_window, count)
    return window + 1 == current_window and count or 0, 0
end
-- A state is forgotten when its window is no longer the previous one.
local function sliding_window_end(window, length, pad)
    return (window + 2) * length - pad
end
-- Whether floor(previous * (length - elapsed) / length) + current + cost <= limit. Returns nil if
-- the products exceed the integers of a double.
local function sliding_window_admits(previous, current, cost, limit, length, elapsed)
    local headroom = limit - current - cost
    local admits = headroom >= 0
    if admits and previous > headroom then
        local weight, weight_limit = previous * (length - elapsed), (headroom + 1) * length
        admits = nil
        if weight <= MAX_INT and weight_limit <= MAX_INT then
            admits = weight < weight_limit
        end
    end
    return admits
end
