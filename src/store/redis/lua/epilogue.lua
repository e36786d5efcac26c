-- Every script ends with this file, after the constructors have been listed in `constructors`.
local state_words, part_count = next_number(), #constructors
local limits = {}
for part = 1, part_count do
    limits[part] = constructors[part]()
end

local limit_fn, call_count = limits[1], #KEYS / part_count
local args_differ, args_start = #ARGV - arg_index >= call_count, arg_index
-- The calls that the fast path left undecided, or all calls.
for index = 1, call_count do if not undecided or undecided[index] then
    local first_key = (index - 1) * part_count + 1
    if args_differ or args_start == arg_index then
        arg_index = args_differ and args_start + index or args_start + 1
        numbers = unpack_doubles(ARGV[arg_index])
    end
    local op, reply_offset = numbers[1], 2 + (index - 1) * (1 + state_words)
    reply_len, number_index = reply_offset, 1
    local admitted, err = true, nil
    if part_count == 1 then
        admitted, err = limit_fn(KEYS[first_key], op, true)
        if op == RESET then
            make_newest(KEYS[first_key])
        end
    else
        -- First ask every limit without a write, then write with the joint verdict: all admit, or
        -- nothing is taken.
        for part = 1, part_count do
            local part_admits, part_err = limits[part](KEYS[first_key + part - 1], op, nil)
            err = err or part_err
            admitted = admitted and part_admits
        end
        if not err then
            number_index = 1
            for part = 1, part_count do
                local _, part_err = limits[part](KEYS[first_key + part - 1], op, admitted)
                err = err or part_err
                if op == RESET then
                    make_newest(KEYS[first_key + part - 1])
                end
            end
        end
    end
    reply[reply_offset] = err or admitted and DONE or op == TAKE and DENIED or DONE
    -- Every call takes the same number of places in the reply.
    while reply_len < reply_offset + state_words do
        push_reply(0)
    end
end end
-- In pieces, because `unpack_table` is bounded by the stack.
local chunks = {}
for first = 1, 1 + call_count * (1 + state_words), 1000 do
    local last = min(first + 999, 1 + call_count * (1 + state_words))
    chunks[#chunks + 1] = pack('<' .. rep('d', last - first + 1), unpack_table(reply, first, last))
end
return chunks[2] and chunks or chunks[1]
