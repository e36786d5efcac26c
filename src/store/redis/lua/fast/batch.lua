    local call_count = #KEYS / part_count
    local args_differ = #ARGV - args_start >= call_count
    -- A command takes longer than the rest of a decision, so the values of all calls are read by one.
    local last_args, op
    -- The stored values, once they are read, and whether one may be missing only because it is not a
    -- string.
    local values, is_unsure
    -- The values that were written after they were read. Equal calls are on different keys.
    local written = args_differ and {}
    local admitted
    reply = { now }
    for index = 1, call_count do
        local args = ARGV[args_differ and args_start + index or args_start + 1]
        if args ~= last_args then
            last_args = args
            op, ARGUMENTS = unpack('<dARGUMENT_DOUBLES', args)
            ON_CHANGE
        end
        local key_offset, reply_offset = (index - 1) * part_count, 2 + (index - 1) * (1 + state_words)
        local is_fast, all_admit = op == TAKE, true
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
    if not undecided then
        local reply_len = 1 + call_count * (1 + state_words)
        return pack('<' .. string.rep('d', reply_len), unpack_table(reply, 1, reply_len))
    end
