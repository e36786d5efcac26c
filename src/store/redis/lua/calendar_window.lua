-- State: when the window is over, and the units used in it.
--   admitted if used + cost <= limit
-- Arguments: the cost; four moments, one after the other, at which windows begin; and when the cost was taken if
-- it is refunded. On the client's clock it is between the second and the third moment.
algorithms.d = function(header, limit)
    return function(key, op, args, commit)
        local cost, starts, taken_at = args[1], { args[2], args[3], args[4], args[5] }, args[6]
        -- When the window at `now` is over. If the clocks are more than a window apart, windows after the
        -- last one are as long as that.
        local index = 2
        while index < 4 and starts[index] <= now do
            index = index + 1
        end
        local window, length = starts[index], starts[4] - starts[3]
        if window <= now then
            window = window + (quotient(now - window, length) + 1) * length
        end

        local value, state_offset, old_params, err = read_value(key, header, 16)
        if err then
            return nil, err
        end
        local used, dirty = 0, false
        if value then
            local stored_window, stored_used = struct.unpack('<dd', value, state_offset)
            -- Other settings have other windows. If the clock was set back, the stored window may be far ahead.
            dirty = old_params ~= nil or stored_window > math.max(window, starts[4])
            if stored_window > now then
                used = stored_used
                window = dirty and window or stored_window
            end
        end

        local admitted = used + cost <= limit
        if commit == nil then
            return admitted
        end
        local new_used = used
        if op == TAKE and commit and admitted then
            new_used = used + cost
        elseif op == REFUND then
            -- The cost of an earlier window is not in the count.
            local start = window - length
            for place = 1, 3 do
                if starts[place + 1] == window then
                    start = starts[place]
                end
            end
            new_used = taken_at < start and used or math.max(used - cost, 0)
        elseif op == CHARGE then
            new_used = math.min(used + cost, MAX_INT)
        elseif op == RESET then
            new_used, dirty = 0, dirty or used > 0
        end
        if dirty or new_used ~= used then
            if new_used > 0 then
                store(key, header, struct.pack('<dd', window, new_used), window)
            else
                remove(key, header)
            end
        end
        push_reply(window)
        push_reply(op == TAKE and used or new_used)
        return admitted
    end
end

-- Its windows are unknown here. It counts up to the end of the one that is stored, and keeps what is refunded.
others.d = function(header, params, args, latest)
    return algorithms.d(header, MAX_INT), { args[1], latest, latest, latest, latest, 0 }
end
