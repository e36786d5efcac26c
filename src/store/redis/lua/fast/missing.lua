if not values[key_offset + NUMBER] then
    local key = KEYS[key_offset + NUMBER]
    names[count + 1], names[count + 2] = key, key .. header_N
    count = count + 2
end
