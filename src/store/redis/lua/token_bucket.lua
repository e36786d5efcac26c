-- The state is when the bucket is full again; see bucket.lua. A change of quota keeps the tokens
-- that are there, up to the new capacity, and those that are owed.
local function token_bucket()
    return bucket(function(due, part, old, mine, fresh, fresh_part)
        -- A full bucket is a new one, whether or not the server has forgotten it yet; unless a new
        -- one has less.
        if fresh + fresh_part == 0 and (due < now or due == now and part == 0) then
            return now, 0
        end
        local x = exchange(old, mine)
        local from, to = x.from, x.to
        local gone, depth = x.used(due, part), x.times(x.big(from.units), from.num)
        local full = x.times(x.big(to.units), to.num)
        if x.less(depth, gone) then
            gone = x.plus(full, x.exchanged(x.minus(gone, depth)))
        else
            -- Rounded down, so that no part of a token is minted.
            local held = x.divide(x.times(x.minus(depth, gone), to.num), from.num)
            gone = x.less(full, held) and {} or x.minus(full, held)
        end
        local whole, rest = x.split(gone, to.parts)
        return min(now + whole, MOST), rest
    end)
end
