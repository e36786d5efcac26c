do
    local parts = unpack('<d', ARGV[1], figures_at)
    local head = #mine
    local size = head + 24
    local op, span, span_part, limit, bound, bound_part
    for index = 1, #KEYS do
        if differ or index == 1 then
            op, span, span_part, limit, bound_part = unpack('<ddddd', ARGV[2 + index])
            bound = limit < 0 and -1 or now + limit
        end
        local due, part, usual = now, 0, op == TAKE
        local value = usual and attempt('GET', KEYS[index])
        if value then
            usual = #value == size and sub(value, 1, head) == mine
            if usual then
                local written
                written, due, part = unpack('<ddd', value, head + 1)
                usual = written <= now
            end
        end
        local after, after_part = due, part
        if after < now then
            after, after_part = now, 0
        end
        after, after_part = after + span, after_part + span_part
        if after_part >= parts then
            after, after_part = after + 1, after_part - parts
        end
        if not usual or after >= MOST then
            left = left or {}
            left[index] = true
        else
            local slot = 3 * index - 1
            answer[slot + 1], answer[slot + 2] = due, part
            if after < bound or after == bound and after_part <= bound_part then
                local forgettable = after + (after_part > 0 and 1 or 0)
                value = mine .. pack('<ddd', now, after, after_part)
                call('PSETEX', KEYS[index], floor((forgettable - now) / 1000) + 2, value)
                answer[slot] = 1
            else
                answer[slot] = 0
            end
        end
    end
end
