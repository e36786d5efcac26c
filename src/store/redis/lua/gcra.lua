-- The state is the theoretical arrival time; see bucket.lua. A change of quota keeps the cells that
-- are left, up to the new burst, and counts whole cells as governor does.
local function gcra()
    return bucket(function(due, part, old_params, own_header)
        if due < now or due == now and part == 0 then
            return now, 0
        end
        local bn, new_params = bignum(), parse_header(own_header, own_header)
        local ns_per_us = { 1000 }
        local function interval(params)
            return bn.add(bn.multiply(bn.from_number(params[2]), ns_per_us), bn.from_number(params[3]))
        end
        local used_ns = bn.add(bn.multiply(bn.from_number(due - now), ns_per_us), bn.from_number(part))
        local used = bn.to_number((bn.divide(used_ns, interval(old_params))))
        used = max(new_params[4] - max(old_params[4] - used, 0), 0)
        local whole, rest = bn.divide(bn.multiply(interval(new_params), bn.from_number(used)), ns_per_us)
        return min(now + bn.to_number(whole), MAX_INT), bn.to_number(rest)
    end)
end
