if is_fast then
    local value = try_call('GET', KEYS[key_offset + NUMBER])
    if value then
        is_fast = #value == value_len_N and sub(value, 1, header_len_N) == header_N
    else
        is_fast = call('EXISTS', KEYS[key_offset + NUMBER] .. header_N) == 0
    end
    if is_fast then
        DECISION
        all_admit = all_admit and admitted
    end
end
