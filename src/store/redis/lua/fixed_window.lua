-- State: the window (its number, or if anchored its first microsecond, plus one), and the units
-- used in it.
--   admitted if used + cost <= limit
-- Arguments: the cost, and when it was taken if it is refunded.
algorithms.f = function(header, limit, length, pad, anchored)
    -- The window at `now`, given the newest one stored, and whether the stored one has not ended. A
    -- window may lie ahead of `now` if the clock was set back. It is moved back to the next one at
    -- most.
    local function advance(window, used, length, pad, anchored)
        local fresh, oldest, next = now + 1, now - length + 2, now + 1 + length
        if anchored == 0 then
            fresh = quotient(now + pad, length) + 1
            oldest, next = fresh, fresh + 1
        end
        if window < oldest then
            return fresh, 0, false
        end
        return math.min(window, next), used, true
    end
    -- An anchored window that was opened stays open, even if all of it is refunded.
    local function save(key, window, used, is_open)
        if used > 0 or is_open and anchored == 1 then
            local unused_at = anchored == 1 and window - 1 + length or window * length - pad
            store(key, header, struct.pack('<dd', window, used), unused_at)
        else
            remove(key, header)
        end
    end

    return function(key, op, args, commit)
        local cost, taken_at = args[1], args[2]
        local value, state_offset, old_params, err = read_value(key, header, 16)
        if err then
            return nil, err
        end
        local window, used, is_open = advance(-MAX_INT, 0, length, pad, anchored)
        local dirty = false
        if value then
            local fresh, stored_window = window, nil
            stored_window, used = struct.unpack('<dd', value, state_offset)
            if old_params then
                window, used, is_open = advance(stored_window, used, unpack(old_params))
                -- An anchored window keeps its start. Any other one is computed anew.
                if is_open and anchored == 1 and old_params[3] == 1 then
                    window, used, is_open = advance(window, used, length, pad, anchored)
                else
                    window = fresh
                end
                dirty = true
            else
                window, used, is_open = advance(stored_window, used, length, pad, anchored)
                dirty = window < stored_window
            end
        end

        local admitted = used + cost <= limit
        if commit == nil then
            return admitted
        end
        local new_used = used
        if op == TAKE then
            if admitted and commit then
                save(key, window, used + cost, true)
                dirty = false
            end
        elseif op == REFUND then
            -- The cost of an earlier window is not in the count.
            local taken_in = anchored == 1 and taken_at + 1 or quotient(taken_at + pad, length) + 1
            new_used = taken_in < window and used or math.max(used - cost, 0)
        elseif op == CHARGE then
            new_used = math.min(used + cost, MAX_INT)
        elseif op == RESET then
            new_used, dirty, is_open = 0, dirty or is_open, false
        end
        if dirty or new_used ~= used then
            save(key, window, new_used, is_open)
        end
        push_reply(window)
        push_reply(new_used)
        return admitted
    end
end

others.f = function(header, params, args)
    return algorithms.f(header, MAX_INT, unpack(params)), args
end
