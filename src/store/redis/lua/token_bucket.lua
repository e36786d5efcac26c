-- The token bucket, and GCRA with a header of its own. The state is when the bucket is full again,
-- which GCRA calls the theoretical arrival time; see bucket.lua. A change of quota keeps the tokens in
-- the bucket, up to the new capacity, and the debt.
local function token_bucket()
    return bucket(function(due, part, old_params, own_header, fresh, fresh_part)
        -- A full bucket equals a new one, even if the server has not expired it yet, unless a new
        -- one starts with fewer tokens.
        if fresh + fresh_part == 0 and (due < now or due == now and part == 0) then
            return now, 0
        end
        local bn = quota_change(old_params, own_header)
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
        return min(now + whole, MAX_INT), rest
    end)
end
