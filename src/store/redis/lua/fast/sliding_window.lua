do
    local limit, length, pad = unpack('<ddd', ARGV[1], params_offset)
    local value_len = header_len + 24
    local current_window, elapsed = sliding_window_at(length, pad)
    local op, cost
    for index = 1, #KEYS do
        if args_differ or index == 1 then
            op, cost = unpack('<dd', ARGV[2 + index])
        end
        local previous, current, fast = 0, 0, op == TAKE
        local value = fast and try_call('GET', KEYS[index])
        if value then
            fast = #value == value_len and sub(value, 1, header_len) == own_header
            if fast then
                local window
                window, previous, current = unpack('<ddd', value, header_len + 1)
                fast = window <= current_window
                if window < current_window then
                    previous, current = sliding_window_carry(window, current_window, current)
                end
            end
        end
        if fast and not value then
            fast = call('EXISTS', KEYS[index] .. own_header) == 0
        end
        local admitted
        if fast then
            admitted = sliding_window_admits(previous, current, cost, limit, length, elapsed)
        end
        if admitted == nil then
            undecided = undecided or {}
            undecided[index] = true
        else
            local reply_offset = 4 * index - 2
            reply[reply_offset], reply[reply_offset + 1] = admitted and DONE or DENIED, current_window
            reply[reply_offset + 2], reply[reply_offset + 3] = previous, current
            if admitted then
                local forgettable_at = sliding_window_end(current_window, length, pad)
                value = own_header .. pack('<ddd', current_window, previous, current + cost)
                call('PSETEX', KEYS[index], ttl_ms(forgettable_at), value)
            end
        end
    end
end
