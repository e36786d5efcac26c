do
    -- The values that were written after they were read. Equal calls are on different keys.
    local written = args_differ and call_count > 1 and {}
    local admitted
    for index = 1, call_count do
        local args = ARGV[args_differ and args_start + index or args_start + 1]
        if args ~= last_args then
            last_args = args
            op, ARGUMENTS = unpack('<dARGUMENT_DOUBLES', args)
            ON_CHANGE
        end
        local key_offset, reply_offset = (index - 1) * part_count, 2 + (index - 1) * (1 + state_words)
        local place, all_admit = reply_offset + 1, true
        local is_fast = op == TAKE
        if is_fast and not values then
            READ
        end
        LIMITS
        if not is_fast then
            undecided = undecided or {}
            undecided[index] = true
        elseif all_admit then
            reply[reply_offset] = DONE
            WRITES
        else
            reply[reply_offset] = DENIED
        end
    end
end
