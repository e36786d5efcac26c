-- State: the window, and the units used in the window before it and in it.
--   admitted if floor(previous * (length - elapsed) / length) + current + cost <= limit
local function sliding_window()
    local own_header = next_arg()
    local limit, length, pad = next_number(), next_number(), next_number()

    -- Moves a state to `now`, and returns how far into its window that is. A window may lie ahead
    -- of `now` if the clock was set back. It is moved back to the next one at most.
    local function advance(window, previous, current, length, pad)
        local current_window, elapsed = sliding_window_at(length, pad)
        if window > current_window then
            return min(window, current_window + 1), previous, current, 0
        elseif window < current_window then
            previous, current = sliding_window_carry(window, current_window, current)
        end
        return current_window, previous, current, elapsed
    end
    local function save(key, window, previous, current)
        if previous + current > 0 then
            local forgettable_at = sliding_window_end(window, length, pad)
            store(key, own_header .. pack('<ddd', window, previous, current), forgettable_at)
        else
            remove(key)
        end
    end

    return function(key, op, commit)
        local cost, taken_at = next_number(), op == REFUND and next_number()
        local value, state_offset, old_params, err = read_value(key, own_header, 24)
        if err then
            return nil, err
        end
        local window, elapsed = sliding_window_at(length, pad)
        local previous, current, dirty = 0, 0, false
        if value then
            local stored_window
            stored_window, previous, current = unpack('<ddd', value, state_offset)
            if old_params then
                local old_length, old_elapsed, _ = old_params[1], 0, nil
                _, previous, current, old_elapsed =
                    advance(stored_window, previous, current, old_length, old_params[2])
                -- What counts now counts as taken now.
                current = mul_div(previous, old_length - old_elapsed, old_length) + current
                previous, dirty = 0, true
            else
                window, previous, current, elapsed =
                    advance(stored_window, previous, current, length, pad)
                dirty = window < stored_window
            end
        end

        local admitted = sliding_window_admits(previous, current, cost, limit, length, elapsed)
        if admitted == nil then
            admitted = product_less(previous, length - elapsed, limit - current - cost + 1, length)
        end
        if commit == nil then
            return admitted
        end
        local new_previous, new_current = previous, current
        if op == TAKE then
            if admitted and commit then
                save(key, window, previous, current + cost)
                dirty = false
            end
        elseif op == REFUND then
            -- Newest cost first, but none that is newer than the refunded one.
            local taken_in = quotient(taken_at + pad, length)
            if taken_in + 1 >= window then
                new_current = taken_in < window and current or max(current - cost, 0)
                new_previous = max(previous - (cost - (current - new_current)), 0)
            end
        elseif op == CHARGE then
            new_current = min(current + cost, MAX_INT)
        elseif op == RESET then
            new_previous, new_current = 0, 0
        end
        if dirty or new_previous ~= previous or new_current ~= current then
            save(key, window, new_previous, new_current)
        end
        push_reply(window)
        push_reply(new_previous)
        push_reply(new_current)
        return admitted
    end
end
