-- The state is when the key is unused again; see bucket.lua. A change of quota keeps the cells that
-- are left, up to the new burst, and counts whole cells as governor does.
local function gcra()
    return bucket(function(due, part, old, mine)
        if due < now or due == now and part == 0 then
            return now, 0
        end
        local x, new = exact(), header(mine, mine)
        local function interval(figures)
            return x.plus(x.times(x.big(figures[2]), { 1000 }), x.big(figures[3]))
        end
        local arrival = x.plus(x.times(x.big(due - now), { 1000 }), x.big(part))
        local used = x.small((x.divide(arrival, interval(old))))
        used = max(new[4] - max(old[4] - used, 0), 0)
        local whole, rest = x.divide(x.times(interval(new), x.big(used)), { 1000 })
        return min(now + x.small(whole), MOST), x.small(rest)
    end)
end
