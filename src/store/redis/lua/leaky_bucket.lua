-- The state is when the level is zero, or the line free; see bucket.lua. A change of quota keeps
-- what is used: the level, or the units that wait. A line that is free has been since the same moment.
--
-- Where a request pays before it goes, a line that is free and rests is not yet one never used:
--   turn = max(due + lead, now), or now where it was never used
local function leaky_bucket()
    local queue, before = number() == 1, number() == 1
    local idle, idle_part = number(), number()
    return bucket(function(due, part, old, mine)
        local x = exchange(old, mine)
        local from, to = x.from, x.to
        -- A line that has rested long enough is a new one, whether or not the server has forgotten
        -- it yet.
        local whole, rest = x.split(x.times(x.big(from.units), from.num), from.parts)
        if due + whole + ceil((part + rest) / from.parts) <= now then
            return 0, 0
        end
        if not queue or due > now or due == now and part > 0 then
            whole, rest = x.split(x.exchanged(x.used(due, part)), to.parts)
            return min(now + whole, MOST), rest
        end
        -- Whole nanoseconds stay; the rest of one is rounded up.
        local ns = quotient(part, from.den)
        rest = x.times(x.big(part - ns * from.den), x.big(to.den))
        part = ns * to.den + x.small(x.divide_up(rest, x.big(from.den)))
        if part >= to.parts then
            due, part = due + 1, part - to.parts
        end
        return due, part
    end, before and idle, idle_part)
end
