if ttl_N then
    -- The server converts numbers slowly, and values of one batch often live equally long.
    if ttl_N ~= text_ttl_N then
        text_ttl_N, text_N = ttl_N, string.format('%.0f', ttl_N)
    end
    call('PSETEX', KEYS[key_offset + NUMBER], text_N, value_N)
else
    offset_N = offset_N or string.format('%.0f', header_len_N)
    call('SETRANGE', KEYS[key_offset + NUMBER], offset_N, value_N)
end
if written then
    written[KEYS[key_offset + NUMBER]] = ttl_N and value_N or header_N .. value_N
end
