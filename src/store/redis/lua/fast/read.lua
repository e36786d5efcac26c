if #KEYS == 1 then
    values = { try_call('GET', KEYS[1]) }
    is_unsure = not values[1] and call('EXISTS', KEYS[1] .. header_1) == 1
else
    -- MGET replies nothing for a value that is not a string.
    values = call('MGET', unpack_table(KEYS))
    local names, count = {}, 0
    for key_offset = 0, #KEYS - 1, part_count do
        MISSING
    end
    is_unsure = count > 0 and call('EXISTS', unpack_table(names, 1, count)) > 0
end
