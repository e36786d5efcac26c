-- Every script ends with this, after `parts` has been made.
local words, count = number(), #parts
local steps = {}
for part = 1, count do
    steps[part] = parts[part]()
end

say(now)
for first = 1, #KEYS, count do
    local op = number()
    local slot, from = said + 1, read
    say(DONE)
    local ok, wrong = true, nil
    if count > 1 then
        -- All of them admit, or none takes anything.
        for part = 1, count do
            local admits, fault = steps[part](KEYS[first + part - 1], op, nil)
            wrong = wrong or fault
            ok = ok and admits
        end
    end
    if not wrong then
        read = from
        for part = 1, count do
            local admits, fault = steps[part](KEYS[first + part - 1], op, ok)
            wrong = wrong or fault
            if count == 1 then
                ok = admits
            end
        end
    end
    answer[slot] = wrong or ok and DONE or op == TAKE and DENIED or DONE
    -- Each call is told in as many numbers, so that they need no brackets.
    while said < slot + words do
        say(0)
    end
end
return answer
