if written then
    written[KEY_NAME] = ttl_N and value_N or header_N .. value_N
end
