-- State: the window, and the units used in the window before it and in it.
--   admitted if floor(previous * (length - elapsed) / length) + current + cost <= limit
-- Arguments: the cost, and when it was taken if it is refunded.
algorithms.w = function(header, limit, length, pad)
    -- Moves a state to `now`, and returns how far into its window that is. A window may lie ahead
    -- of `now` if the clock was set back. It is moved back to the next one at most.
    local function advance(window, previous, current, length, pad)
        local elapsed = math.fmod(now + pad, length)
        local current_window = (now + pad - elapsed) / length
        if window > current_window then
            return math.min(window, current_window + 1), previous, current, 0
        elseif window < current_window then
            previous, current = window + 1 == current_window and current or 0, 0
        end
        return current_window, previous, current, elapsed
    end
    local function save(key, window, previous, current)
        if previous + current > 0 then
            -- It is unused when its window is no longer the previous one.
            store(key, header, struct.pack('<ddd', window, previous, current), (window + 2) * length - pad)
        else
            remove(key, header)
        end
    end

    return function(key, op, args, commit)
        local cost, taken_at = args[1], args[2]
        local value, state_offset, old_params, err = read_value(key, header, 24)
        if err then
            return nil, err
        end
        local window, previous, current, elapsed = advance(0, 0, 0, length, pad)
        local dirty = false
        if value then
            local stored_window
            stored_window, previous, current = struct.unpack('<ddd', value, state_offset)
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

        local room = limit - current - cost
        local admitted = room >= 0
            and (previous <= room or product_less(previous, length - elapsed, room + 1, length))
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
                new_current = taken_in < window and current or math.max(current - cost, 0)
                new_previous = math.max(previous - (cost - (current - new_current)), 0)
            end
        elseif op == CHARGE then
            new_current = math.min(current + cost, MAX_INT)
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

others.w = function(header, params, args)
    return algorithms.w(header, MAX_INT, unpack(params)), args
end
