do
    local limit, length, pad, anchored = unpack('<dddd', ARGV[1], params_offset)
    anchored = anchored == 1
    local value_len = header_len + 16
    local fresh, oldest = fixed_window_at(length, pad, anchored)
    local op, cost
    for index = 1, #KEYS do
        if args_differ or index == 1 then
            op, cost = unpack('<dd', ARGV[2 + index])
        end
        local window, used, fast = fresh, 0, op == TAKE
        local value = fast and try_call('GET', KEYS[index])
        if value then
            fast = #value == value_len and sub(value, 1, header_len) == own_header
            if fast then
                window, used = unpack('<dd', value, header_len + 1)
                fast = window <= fresh
                if window < oldest then
                    window, used = fresh, 0
                end
            end
        end
        if fast and not value then
            fast = call('EXISTS', KEYS[index] .. own_header) == 0
        end
        if not fast then
            undecided = undecided or {}
            undecided[index] = true
        else
            local reply_offset = 3 * index - 1
            local admitted = used + cost <= limit
            reply[reply_offset] = admitted and DONE or DENIED
            reply[reply_offset + 1], reply[reply_offset + 2] = window, used
            if admitted then
                local forgettable_at = fixed_window_end(window, length, pad, anchored)
                value = own_header .. pack('<dd', window, used + cost)
                call('PSETEX', KEYS[index], ttl_ms(forgettable_at), value)
            end
        end
    end
end
