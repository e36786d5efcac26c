-- MGET replies nothing for a value that is not a string.
values = call('MGET', unpack_table(KEYS))
local missing, count = {}, 0
for key_offset = 0, #KEYS - 1, part_count do
    MISSING
end
is_unsure = count > 0 and call('EXISTS', unpack_table(missing, 1, count)) > 0
