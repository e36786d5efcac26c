if is_fast then
    local value = try_call('GET', KEYS[key_offset + NUMBER])
    if value then
        is_fast = #value == value_len_N and sub(value, 1, header_len_N) == header_N
    else
        is_fast = call('EXISTS', KEYS[key_offset + NUMBER] .. header_N) == 0
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
            value_N = header_N .. pack('<STATE_DOUBLES', NEXT)
            ttl_N = ttl_ms(UNUSED_AT)
        end
        all_admit = all_admit and admitted
    end
end
