if is_fast then
    local key = KEYS[key_offset + NUMBER]
    local value = written and written[key] or values[key_offset + NUMBER]
    if value then
        is_fast = #value == value_len_N and sub(value, 1, header_len_N) == header_N
    elseif is_unsure then
        is_fast = call('EXISTS', key, key .. header_N) == 0
    end
    if is_fast then
        local STATE
        if value then
            STATE = unpack('<STATE_DOUBLES', value, header_len_N + 1)
        end
        DECISION
        PLACES = REPLY
        place = place + REPLY_LEN
        if admitted then
            ttl_N = not (SAME_END) and ttl_ms(UNUSED_AT)
            value_N = pack('<c0STATE_DOUBLES', ttl_N and header_N or '', NEXT)
        end
        all_admit = all_admit and admitted
    end
end
