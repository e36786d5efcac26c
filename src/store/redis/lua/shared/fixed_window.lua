-- The window that begins at `now` or contains it, and the oldest stored window that has not ended.
local function fixed_window_at(length, pad, anchored)
    if anchored then
        return now + 1, now - length + 2
    end
    local current_window = (now + pad - fmod(now + pad, length)) / length + 1
    return current_window, current_window
end
local function fixed_window_end(window, length, pad, anchored)
    return anchored and window - 1 + length or window * length - pad
end
