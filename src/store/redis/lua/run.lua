-- Every script ends with this, after `parts` has been made.
local words, count = number(), #parts
local steps = {}
for part = 1, count do
    steps[part] = parts[part]()
end

answer[1] = now
local step, calls = steps[1], #KEYS / count
local differ, begin = #ARGV - given >= calls, given
-- Those that are left: all, where nothing was decided before.
for index = 1, calls do if not left or left[index] then
    local first = (index - 1) * count + 1
    if differ or begin == given then
        given = differ and begin + index or begin + 1
        numbers = unpacked(ARGV[given])
    end
    -- Each call is told in as many numbers, so that they need no brackets.
    local op, slot = numbers[1], 2 + (index - 1) * (1 + words)
    said, read = slot, 1
    local ok, wrong = true, nil
    if count == 1 then
        ok, wrong = step(KEYS[first], op, true)
    else
        -- All of them admit, or none takes anything.
        for part = 1, count do
            local admits, fault = steps[part](KEYS[first + part - 1], op, nil)
            wrong = wrong or fault
            ok = ok and admits
        end
        if not wrong then
            read = 1
            for part = 1, count do
                local _, fault = steps[part](KEYS[first + part - 1], op, ok)
                wrong = wrong or fault
            end
        end
    end
    answer[slot] = wrong or ok and DONE or op == TAKE and DENIED or DONE
    while said < slot + words do
        say(0)
    end
end end
-- In pieces that the stack has room for.
local texts = {}
for first = 1, 1 + calls * (1 + words), 1000 do
    local last = min(first + 999, 1 + calls * (1 + words))
    texts[#texts + 1] = pack('<' .. rep('d', last - first + 1), spread(answer, first, last))
end
return texts[2] and texts or texts[1]
