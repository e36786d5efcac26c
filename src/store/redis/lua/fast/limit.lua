if is_fast then
    local key = KEY_NAME
    local value = VALUE
    if value then
        is_fast = #value == value_len_N and find(value, header_N, 1, true) == 1
    IF_MISSING
    end
    if is_fast then
        local STATE
        if value then
            STATE = unpack('<STATE_DOUBLES', value, header_len_N + 1)
        end
        DECISION
        PLACES = REPLY
        if admitted then
            local unused_at = UNUSED_AT
            if SAME_EXPIRY then
                ttl_N, value_N = nil, pack('<STATE_DOUBLES', NEXT)
            else
                ttl_N = ttl_ms(unused_at)
                value_N = pack('<c0STATE_DOUBLES', header_N, NEXT)
            end
        end
        all_admit = all_admit and admitted
    end
end
