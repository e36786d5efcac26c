-- State: the window (its number, or if anchored its first microsecond, plus one), and the units
-- used in it.
--   admitted if used + cost <= limit
local function fixed_window()
    local own_header = next_arg()
    local limit, length, pad, anchored = next_number(), next_number(), next_number(), next_number() == 1

    -- The window at `now`, given the newest one stored, and whether the stored one has not ended. A
    -- window may lie ahead of `now` if the clock was set back. It is moved back to the next one at
    -- most.
    local function advance(window, used, length, pad, anchored)
        local fresh, oldest = fixed_window_at(length, pad, anchored)
        if window < oldest then
            return fresh, 0, false
        end
        return min(window, fresh + (anchored and length or 1)), used, true
    end
    -- An anchored window that was opened stays open, even if all of it is refunded.
    local function save(key, window, used, is_open)
        if used > 0 or is_open and anchored then
            local forgettable_at = fixed_window_end(window, length, pad, anchored)
            store(key, own_header .. pack('<dd', window, used), forgettable_at)
        else
            remove(key)
        end
    end

    return function(key, op, commit)
        local cost, taken_at = next_number(), op == REFUND and next_number()
        local value, state_offset, old_params, err = read_value(key, own_header, 16)
        if err then
            return nil, err
        end
        local used, dirty, is_open = 0, false, false
        local window = fixed_window_at(length, pad, anchored)
        if value then
            local fresh, stored_window = window, nil
            stored_window, used = unpack('<dd', value, state_offset)
            if old_params then
                local was_anchored = old_params[3] == 1
                window, used, is_open = advance(stored_window, used, old_params[1], old_params[2], was_anchored)
                -- An anchored window keeps its start. Any other one is computed anew.
                if anchored and was_anchored and is_open then
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
            local taken_in = anchored and taken_at + 1 or quotient(taken_at + pad, length) + 1
            new_used = taken_in < window and used or max(used - cost, 0)
        elseif op == CHARGE then
            new_used = min(used + cost, MAX_INT)
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
