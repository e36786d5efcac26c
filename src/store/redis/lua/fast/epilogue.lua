if not undecided then
    local reply_len = 1 + call_count * (1 + state_words)
    if reply_len == 4 then
        -- A single call of most algorithms.
        return pack('<dddd', reply[1], reply[2], reply[3], reply[4])
    end
    return pack('<' .. string.rep('d', reply_len), unpack_table(reply, 1, reply_len))
end
