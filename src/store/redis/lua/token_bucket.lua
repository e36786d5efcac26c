-- The state is when the bucket is full again; see bucket.lua. A change of quota keeps the tokens
-- that are there, up to the new capacity.
local function token_bucket()
    return bucket(function(due, part, old, mine, fresh, fresh_part)
        -- A full bucket is a new one, whether or not the server has forgotten it yet.
        if due < now or due == now and part == 0 then
            return now + fresh, fresh_part
        end
        local from, to = pace(old), pace((header(mine, mine)))
        local gone = exchanged(used(due, part, from.parts), from, to)
        if to.capacity >= from.capacity then
            gone = plus(gone, times(big(to.capacity - from.capacity), to.num))
        else
            local fewer = times(big(from.capacity - to.capacity), to.num)
            gone = less(gone, fewer) and {} or minus(gone, fewer)
        end
        local whole, rest = split(gone, to.parts)
        return min(now + whole, MOST), rest
    end)
end
