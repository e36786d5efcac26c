-- State: when it was written, the stored permits (in units that make every parameter an integer),
-- and when the queue is empty: microseconds, and parts of one as in bucket.lua.
--   accrue: stored = min(full, stored + idle nanoseconds * refill)
--   admitted if max(free, now) <= now + bound
--   free = max(free, now) + span of the cost + ramp_cost(stored) - ramp_cost(stored - permits)
--   ramp_cost(s) = floor((cold_factor - 1) * ramp * a^2 / ((cold_factor + 1) * ramp_permits^2)),
--     where a is what s exceeds the threshold by, and ramp_permits = full - threshold
-- Arguments: the permits of the cost, its span and the bound as in bucket.lua, and when it was taken if it is
-- refunded.
algorithms.u = function(header, den, refill, threshold, full, cold_factor, ramp, cooldown)
    local parts_per_us, ramp_permits = 1000 * den, full - threshold

    -- The nanoseconds that `stored` costs more than as many warm permits.
    local function ramp_cost(stored)
        local above = stored - threshold
        if above <= 0 or cold_factor == 1 then
            return 0
        end
        local bn = bignum()
        local from_number, multiply = bn.from_number, bn.multiply
        local square = multiply(from_number(above), from_number(above))
        local whole = multiply(from_number(ramp_permits), from_number(ramp_permits))
        local cost = bn.divide(
            multiply(multiply(from_number(cold_factor - 1), from_number(ramp)), square),
            multiply(from_number(cold_factor + 1), whole)
        )
        return bn.to_number(cost)
    end
    -- Adds the permits of the idle time up to `now`. `cooldown` microseconds fill any store.
    local function accrue(stored, free, part)
        if free > now or free == now and part > 0 then
            return stored, free, part
        end
        local idle = now - free
        if idle > cooldown then
            return full, now, 0
        end
        -- The nanosecond that has begun does not count.
        local begun_ns = quotient(part + den - 1, den)
        return math.min(full, stored + (idle * 1000 - begun_ns) * refill), now, 0
    end
    local function save(key, stored, free, part)
        local unused_at = free + quotient(full - stored, 1000 * refill) + 2
        store(key, header, struct.pack('<dddd', now, stored, free, part), unused_at)
    end

    return function(key, op, args, commit)
        local permits, span, span_part, bound, bound_part, taken_at = unpack(args)
        local value, state_offset, old_params, err = read_value(key, header, 32)
        if err then
            return nil, err
        end
        local stored, free, part, dirty = full, 0, 0, false
        if value then
            local written
            written, stored, free, part = struct.unpack('<dddd', value, state_offset)
            if written > now and free > now + cooldown then
                -- The clock was set back: no wait is longer than before, or than a warm-up takes.
                free, dirty = now + math.max(free - written, cooldown), true
            end
            if old_params then
                -- Cold, as permits mean something only under the settings that stored them. Queued requests keep
                -- their turns.
                stored = full
                part = bignum().rescale_part(part, old_params[1], den)
                if part >= parts_per_us then
                    free, part = free + 1, part - parts_per_us
                end
                dirty = true
            end
        end

        local stored_now, free_now, part_now = accrue(stored, free, part)
        bound = bound < MAX_INT and now + bound or -1
        local admitted = free_now < bound or free_now == bound and part_now <= bound_part
        if commit == nil then
            return admitted
        end
        if op == TAKE and admitted and commit or op == CHARGE and span + span_part > 0 then
            local stored_after = math.max(stored_now - permits, 0)
            local ramp_ns = ramp_cost(stored_now) - ramp_cost(stored_after)
            local rest = math.fmod(ramp_ns, 1000)
            local after = free_now + span + (ramp_ns - rest) / 1000
            local after_part = part_now + span_part + rest * den
            while after_part >= parts_per_us do
                after, after_part = after + 1, after_part - parts_per_us
            end
            if after >= MAX_INT then
                after, after_part = MAX_INT, 0
            end
            save(key, stored_after, after, after_part)
            dirty = false
            if op == CHARGE then
                stored, free, part = stored_after, after, after_part
            end
        elseif op == REFUND then
            stored, free, part = stored_now, free_now, part_now
            -- Time has returned at most as much as has passed.
            local left = span - math.max(now - taken_at, 0)
            if left < 0 then
                left, span_part = 0, 0
            end
            free, part = free - left, part - span_part
            if part < 0 then
                free, part = free - 1, part + parts_per_us
            end
            if free < now then
                free, part = now, 0
            end
            dirty = true
        elseif op == RESET then
            stored, free, part = full, 0, 0
            remove(key, header)
            dirty = false
        end
        if dirty then
            save(key, stored, free, part)
        end
        push_reply(stored)
        push_reply(free)
        push_reply(part)
        return admitted
    end
end
