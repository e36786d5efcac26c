if not left then
    words = 1 + #KEYS * (1 + words)
    return pack('<' .. string.rep('d', words), spread(answer, 1, words))
end
