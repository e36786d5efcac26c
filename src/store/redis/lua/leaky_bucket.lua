-- The state is when the level is zero, or the line free; see bucket.lua. A change of quota keeps
-- what is used, and in a line everyone's turn.
local function leaky_bucket()
    local queue = number() == 1
    return bucket(function(due, part, old, mine)
        local x = exchange(old, mine)
        local from, to = x.from, x.to
        if queue then
            -- Whole nanoseconds stay; the rest of one is rounded up.
            local ns = quotient(part, from.den)
            local rest = x.times(x.big(part - ns * from.den), x.big(to.den))
            part = ns * to.den + x.small(x.divide_up(rest, x.big(from.den)))
            if part >= to.parts then
                due, part = due + 1, part - to.parts
            end
            return due, part
        end
        local level = x.used(due, part)
        local full = x.times(x.big(from.capacity), from.num)
        local kept = x.exchanged(level)
        local brim = x.times(x.big(to.capacity), to.num)
        if not x.less(full, level) and x.less(brim, kept) then
            kept = brim
        end
        local whole, rest = x.split(kept, to.parts)
        return min(now + whole, MOST), rest
    end)
end
