do
    local fmod = math.fmod
    local limit, length, pad = unpack('<ddd', ARGV[1], 9)
    local head = #mine
    local size = head + 24
    local elapsed = fmod(now + pad, length)
    local present = (now + pad - elapsed) / length
    local op, cost
    for index = 1, #KEYS do
        if differ or index == 1 then
            op, cost = unpack('<dd', ARGV[2 + index])
        end
        local previous, current, usual = 0, 0, op == TAKE
        local value = usual and attempt('GET', KEYS[index])
        if value then
            usual = #value == size and sub(value, 1, head) == mine
            if usual then
                local window
                window, previous, current = unpack('<ddd', value, head + 1)
                usual = window <= present
                if window < present then
                    previous, current = window + 1 == present and current or 0, 0
                end
            end
        end
        local room = limit - current - cost
        local weight, most = previous * (length - elapsed), (room + 1) * length
        if not usual or room >= 0 and previous > room and (weight > MOST or most > MOST) then
            left = left or {}
            left[index] = true
        else
            local slot = 4 * index - 2
            answer[slot + 1], answer[slot + 2], answer[slot + 3] = present, previous, current
            if room >= 0 and (previous <= room or weight < most) then
                local forgettable = (present + 2) * length - pad
                value = mine .. pack('<ddd', present, previous, current + cost)
                call('PSETEX', KEYS[index], floor((forgettable - now) / 1000) + 2, value)
                answer[slot] = 1
            else
                answer[slot] = 0
            end
        end
    end
end
