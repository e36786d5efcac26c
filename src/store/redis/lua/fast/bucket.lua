local parts_per_us_N = unpack('<d', ARGV[1], PARAMS)
local value_len_N = header_len_N + 24
local span_N, span_part_N, bound_N, bound_part_N
-- Arguments.
span_N, span_part_N, bound_N, bound_part_N, arg_offset = unpack('<dddd', args, arg_offset)
bound_N = bound_N < 0 and -1 or now + bound_N
-- Decision.
local due, part, after, after_part = now, 0, nil, nil
if value then
    local written
    written, due, part = unpack('<ddd', value, header_len_N + 1)
    is_fast = written <= now
end
admitted, after, after_part =
    bucket_step(due, part, span_N, span_part_N, bound_N, bound_part_N, parts_per_us_N)
reply[place], reply[place + 1] = due, part
place = place + 2
if admitted then
    value_N = header_N .. pack('<ddd', now, after, after_part)
    ttl_N = ttl_ms(after + (after_part > 0 and 1 or 0))
end
