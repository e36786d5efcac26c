if not left then
    words = 1 + #KEYS * (1 + words)
    if words == 4 then
        -- A call that is alone, of most algorithms.
        return pack('<dddd', answer[1], answer[2], answer[3], answer[4])
    end
    return pack('<' .. string.rep('d', words), spread(answer, 1, words))
end
