-- The state is when the level reaches zero, or the queue is empty; see bucket.lua. A change of
-- quota keeps the level, or the units in the queue. An empty queue stays empty since the same moment.
--
-- With charging before the release, an empty queue still counts a rest before it is never used:
--   turn = max(due + lead, now), or now if it was never used
algorithms.l = function(header, parts_per_us, depth, depth_part, queue, charge_before, idle, idle_part)
    local function rescale(due, part, bn)
        local from = bn.from
        -- A queue that has rested long enough equals a new one, even if the server has not expired
        -- it yet.
        local whole, rest = bn.split(bn.multiply(bn.from_number(from.units), from.num), from.parts_per_us)
        if due + whole + math.ceil((part + rest) / from.parts_per_us) <= now then
            return 0, 0
        end
        if queue == 0 then
            return bn.convert_used(due, part, depth, depth_part)
        end
        if due > now or due == now and part > 0 then
            return bn.convert_line(due, part)
        end
        return bn.convert_moment(due, part)
    end
    local is_idle = charge_before == 1 and idle
    return bucket(header, parts_per_us, depth, depth_part, 0, 0, 0, rescale, is_idle, idle_part)
end
