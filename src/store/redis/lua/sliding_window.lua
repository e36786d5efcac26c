-- State: the window, what was used in the one before it and in itself.
--   admitted if floor(previous * (length - elapsed) / length) + current + cost <= limit
local function sliding_window()
    local mine = text()
    local limit, length, pad = number(), number(), number()
    local size = #mine + 24

    -- Carries a state to `now`; answers how far into its window that is. A window may lie ahead of
    -- `now` if the clock was set back; further ahead than the next one it is brought back to that.
    local function place(window, previous, current, length, pad)
        local elapsed = fmod(now + pad, length)
        local present = (now + pad - elapsed) / length
        if window == present then
            return window, previous, current, elapsed
        elseif window > present then
            return min(window, present + 1), previous, current, 0
        end
        return present, window + 1 == present and current or 0, 0, elapsed
    end
    local function put(key, window, previous, current)
        if previous + current > 0 then
            keep(key, mine .. pack('<ddd', window, previous, current), (window + 2) * length - pad)
        else
            call('DEL', key)
        end
    end

    return function(key, op, commit)
        local cost = number()
        local value = attempt('GET', key)
        local window, previous, current, elapsed, moved = 0, 0, 0, 0, false
        local from, old, at = 0, nil, 0
        if value and #value == size and sub(value, 1, size - 24) == mine then
            at = size - 23
        elseif value then
            old = false
            if type(value) == 'string' then
                old, at = header(value, mine)
            end
            if old == false or old and #value ~= at + 23 then
                return nil, fault(value)
            end
        end
        if old then
            from, previous, current = unpack('<ddd', value, at)
            window, previous, current, elapsed = place(from, previous, current, old[1], old[2])
            -- What counts now counts as taken now.
            current = share(previous, old[1] - elapsed, old[1]) + current
            window, previous, moved = 0, 0, current > 0
            local used = current
            window, previous, current, elapsed = place(0, 0, 0, length, pad)
            previous, current = 0, used
        elseif at and at > 0 then
            from, previous, current = unpack('<ddd', value, at)
            window, previous, current, elapsed = place(from, previous, current, length, pad)
            moved = window < from
        else
            window, previous, current, elapsed = place(0, 0, 0, length, pad)
        end

        local room = limit - current - cost
        local ok = room >= 0
            and (previous <= room or product_less(previous, length - elapsed, room + 1, length))
        if commit == nil then
            return ok
        end
        local before, left = previous, current
        if op == TAKE then
            if ok and commit then
                put(key, window, previous, current + cost)
                moved = false
            end
        elseif op == REFUND then
            left = max(current - cost, 0)
            before = max(previous - (cost - (current - left)), 0)
        elseif op == ABSORB then
            left = min(current + cost, MOST)
        elseif op == RESET then
            before, left = 0, 0
        end
        if moved or before ~= previous or left ~= current then
            put(key, window, before, left)
        end
        say(window)
        say(before)
        say(left)
        return ok
    end
end
