-- The server converts numbers slowly, and values of one batch often live equally long.
if ttl_N ~= text_ttl_N then
    text_ttl_N, text_N = ttl_N, string.format('%.0f', ttl_N)
end
call('PSETEX', KEYS[key_offset + NUMBER], text_N, value_N)
