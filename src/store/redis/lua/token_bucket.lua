-- The token bucket, and GCRA with a header of its own. The state is when the bucket is full again,
-- which GCRA calls the theoretical arrival time; see bucket.lua. A change of quota keeps what is
-- used.
algorithms.t = function(header, parts_per_us, depth, depth_part, initial_used, initial_used_part, min_ttl)
    local function rescale(due, part, bn)
        -- A full bucket equals a new one, even if the server has not expired it yet, unless a new
        -- one starts with fewer tokens.
        if initial_used + initial_used_part == 0 and (due < now or due == now and part == 0) then
            return now, 0
        end
        return bn.convert_used(due, part, depth, depth_part)
    end
    return bucket(header, parts_per_us, depth, depth_part, initial_used, initial_used_part, min_ttl, rescale)
end
algorithms.c = algorithms.t
