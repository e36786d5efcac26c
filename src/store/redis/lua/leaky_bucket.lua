-- The state is when the level is zero, or the line free; see bucket.lua. A change of quota keeps
-- what is used, and in a line everyone's turn.
local function leaky_bucket()
    local queue = number() == 1
    return bucket(function(due, part, old, mine)
        local from, to = pace(old), pace((header(mine, mine)))
        if queue then
            -- Whole nanoseconds stay; the rest of one is rounded up.
            local ns = quotient(part, from.den)
            local rest = divide_up(times(big(part - ns * from.den), big(to.den)), big(from.den))
            part = ns * to.den + small(rest)
            if part >= to.parts then
                due, part = due + 1, part - to.parts
            end
            return due, part
        end
        local level = used(due, part, from.parts)
        local full = times(big(from.capacity), from.num)
        local kept = exchanged(level, from, to)
        local brim = times(big(to.capacity), to.num)
        if not less(full, level) and less(brim, kept) then
            kept = brim
        end
        local whole, rest = split(kept, to.parts)
        return min(now + whole, MOST), rest
    end)
end
