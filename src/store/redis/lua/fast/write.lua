if ttl_N then
    -- The server converts numbers slowly, and values of one batch often live equally long.
    if ttl_N ~= text_ttl_N then
        text_ttl_N, text_N = ttl_N, string.format('%.0f', ttl_N)
    end
    call('PSETEX', KEY_NAME, text_N, value_N)
else
    offset_N = offset_N or string.format('%.0f', header_len_N)
    call('SETRANGE', KEY_NAME, offset_N, value_N)
end
