do
    local fmod = math.fmod
    local limit, length, pad, anchored = unpack('<dddd', ARGV[1], 9)
    local head = #mine
    local size = head + 16
    -- The window that begins now, or that of the grid; and the last one that is no later.
    local fresh = anchored == 1 and now + 1 or (now + pad - fmod(now + pad, length)) / length + 1
    local oldest = anchored == 1 and now - length + 2 or fresh
    local op, cost
    for index = 1, #KEYS do
        if differ or index == 1 then
            op, cost = unpack('<dd', ARGV[2 + index])
        end
        local window, used, usual = fresh, 0, op == TAKE
        local value = usual and attempt('GET', KEYS[index])
        if value then
            usual = #value == size and sub(value, 1, head) == mine
            if usual then
                window, used = unpack('<dd', value, head + 1)
                usual = window <= fresh
                if window < oldest then
                    window, used = fresh, 0
                end
            end
        end
        if not usual then
            left = left or {}
            left[index] = true
        else
            local slot = 3 * index - 1
            answer[slot + 1], answer[slot + 2] = window, used
            if used + cost <= limit then
                local forgettable = anchored == 1 and window - 1 + length or window * length - pad
                value = mine .. pack('<dd', window, used + cost)
                call('PSETEX', KEYS[index], floor((forgettable - now) / 1000) + 2, value)
                answer[slot] = 1
            else
                answer[slot] = 0
            end
        end
    end
end
