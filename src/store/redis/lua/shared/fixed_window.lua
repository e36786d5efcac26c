-- The window that begins at `now` or contains it, and the oldest stored window that has not ended.
local function fixed_window_at(length, pad, anchored)
    local fresh, oldest = now + 1, now - length + 2
    if not anchored then
        fresh = (now + pad - fmod(now + pad, length)) / length + 1
        oldest = fresh
    end
    return fresh, oldest
end
local function fixed_window_end(window, length, pad, anchored)
    return anchored and window - 1 + length or window * length - pad
end
