-- The state is when the bucket is full again; see bucket.lua. A change of quota keeps the tokens
-- that are there, up to the new capacity.
local function token_bucket()
    return bucket(function(due, part, old, mine, fresh, fresh_part)
        -- A full bucket is a new one, whether or not the server has forgotten it yet.
        if due < now or due == now and part == 0 then
            return now + fresh, fresh_part
        end
        local x = exchange(old, mine)
        local from, to = x.from, x.to
        local gone = x.exchanged(x.used(due, part))
        if to.capacity >= from.capacity then
            gone = x.plus(gone, x.times(x.big(to.capacity - from.capacity), to.num))
        else
            local fewer = x.times(x.big(from.capacity - to.capacity), to.num)
            gone = x.less(gone, fewer) and {} or x.minus(gone, fewer)
        end
        local whole, rest = x.split(gone, to.parts)
        return min(now + whole, MOST), rest
    end)
end
