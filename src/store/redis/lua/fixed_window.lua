-- State: the window (its number, or if anchored its first microsecond, plus one; 0 is none yet),
-- and what was used in it.
--   admitted if used + cost <= limit
local function fixed_window()
    local mine = text()
    local limit, length, pad, anchored = number(), number(), number(), number() == 1
    local size = #mine + 16

    -- The window at `now`, given the newest one used, and whether it is that one. A window may lie ahead of `now` if the clock
    -- was set back; further ahead than the next one it is brought back to that.
    local function place(window, used, length, pad, anchored)
        if anchored then
            if window == 0 or now >= window - 1 + length then
                return now + 1, 0, false
            end
            return min(window, now + length + 1), used, true
        end
        local present = quotient(now + pad, length) + 1
        if window < present then
            return present, 0, false
        end
        return min(window, present + 1), used, true
    end
    local function over(window)
        return anchored and window - 1 + length or window * length - pad
    end
    -- An anchored window that was opened stays open, whatever was given back of it.
    local function put(key, window, used, open)
        if used > 0 or open and anchored then
            keep(key, mine .. pack('<dd', window, used), over(window))
        else
            call('DEL', key)
        end
    end

    return function(key, op, commit)
        local cost = number()
        local value = attempt('GET', key)
        local window, used, moved, open, from = 0, 0, false, false, 0
        if value and #value == size and sub(value, 1, size - 16) == mine then
            from, used = unpack('<dd', value, size - 15)
            window, used, open = place(from, used, length, pad, anchored)
            moved = window < from
        elseif value then
            local old, at = false, 0
            if type(value) == 'string' then
                old, at = header(value, mine)
            end
            if old == false or old and #value ~= at + 15 then
                return nil, fault(value)
            elseif old then
                from, used = unpack('<dd', value, at)
                local was_anchored = old[3] == 1
                window, used, open = place(from, used, old[1], old[2], was_anchored)
                -- An anchored window keeps its start; any other one is found again.
                if not (anchored and was_anchored and open) then
                    window = place(0, 0, length, pad, anchored)
                else
                    window, used, open = place(window, used, length, pad, anchored)
                end
                moved = true
            else
                window = place(0, 0, length, pad, anchored)
            end
        else
            window = place(0, 0, length, pad, anchored)
        end

        local ok = used + cost <= limit
        if commit == nil then
            return ok
        end
        local left = used
        if op == TAKE then
            if ok and commit then
                put(key, window, used + cost, true)
                moved = false
            end
        elseif op == REFUND then
            left = max(used - cost, 0)
        elseif op == ABSORB then
            left = min(used + cost, MOST)
        elseif op == RESET then
            left, moved, open = 0, moved or open, false
        end
        if moved or left ~= used then
            put(key, window, left, open)
        end
        say(window)
        say(left)
        return ok
    end
end
