-- The token bucket, and GCRA with a header of its own. The state is when the bucket is full again,
-- which GCRA calls the theoretical arrival time; see bucket.lua. A change of quota keeps the tokens in
-- the bucket, up to the new capacity, and the debt.
algorithms.t = function(header, parts_per_us, depth, depth_part, initial_used, initial_used_part, min_ttl)
    local function rescale(due, part, bn)
        -- A full bucket equals a new one, even if the server has not expired it yet, unless a new
        -- one starts with fewer tokens.
        if initial_used + initial_used_part == 0 and (due < now or due == now and part == 0) then
            return now, 0
        end
        local from, to = bn.from, bn.to
        local used, depth = bn.used(due, part), bn.multiply(bn.from_number(from.units), from.num)
        local full = bn.multiply(bn.from_number(to.units), to.num)
        if bn.less(depth, used) then
            used = bn.add(full, bn.convert(bn.subtract(used, depth)))
        else
            -- Rounded down, so that no part of a token is minted.
            local tokens = bn.divide(bn.multiply(bn.subtract(depth, used), to.num), from.num)
            used = bn.less(full, tokens) and {} or bn.subtract(full, tokens)
        end
        local whole, rest = bn.split(used, to.parts_per_us)
        return math.min(now + whole, MAX_INT), rest
    end
    return bucket(header, parts_per_us, depth, depth_part, initial_used, initial_used_part, min_ttl, rescale)
end
algorithms.c = algorithms.t
