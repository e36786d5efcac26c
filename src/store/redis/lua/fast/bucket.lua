do
    local parts_per_us = unpack('<d', ARGV[1], params_offset)
    local value_len = header_len + 24
    local op, span, span_part, limit, bound, bound_part
    for index = 1, #KEYS do
        if args_differ or index == 1 then
            op, span, span_part, limit, bound_part = unpack('<ddddd', ARGV[2 + index])
            bound = limit < 0 and -1 or now + limit
        end
        local due, part, fast = now, 0, op == TAKE
        local value = fast and try_call('GET', KEYS[index])
        if value then
            fast = #value == value_len and sub(value, 1, header_len) == own_header
            if fast then
                local written
                written, due, part = unpack('<ddd', value, header_len + 1)
                fast = written <= now
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
            local admitted, after, after_part =
                bucket_step(due, part, span, span_part, bound, bound_part, parts_per_us)
            reply[reply_offset] = admitted and DONE or DENIED
            reply[reply_offset + 1], reply[reply_offset + 2] = due, part
            if admitted then
                value = own_header .. pack('<ddd', now, after, after_part)
                call('PSETEX', KEYS[index], ttl_ms(after + (after_part > 0 and 1 or 0)), value)
            end
        end
    end
end
