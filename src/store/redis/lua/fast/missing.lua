if not values[key_offset + NUMBER] then
    count = count + 1
    missing[count] = KEYS[key_offset + NUMBER]
end
