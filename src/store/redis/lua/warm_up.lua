-- State: when it was written, the permits in store (in units that make every figure whole), and
-- when the line is free: microseconds, and parts of one as in bucket.lua.
--   rested: stored = min(full, stored + idle nanoseconds * refill)
--   admitted if max(free, now) <= now + bound
--   free = max(free, now) + span of the cost + extra(stored) - extra(stored - permits taken)
--   extra(s) = floor((cold - 1) * ramp * a^2 / ((cold + 1) * most^2)), a = what s is above the
--   threshold, most = full - threshold
local function warm_up()
    local mine = text()
    local den, refill, threshold, full = number(), number(), number(), number()
    local cold, ramp, cooling = number(), number(), number()
    local parts, most = 1000 * den, full - threshold
    local size = #mine + 32

    -- Nanoseconds that `stored` costs more than warm permits.
    local function extra(stored)
        local above = stored - threshold
        if above <= 0 or cold == 1 then
            return 0
        end
        local x = exact()
        local big, times = x.big, x.times
        local square, whole = times(big(above), big(above)), times(big(most), big(most))
        local ratio = x.divide(
            times(times(big(cold - 1), big(ramp)), square),
            times(big(cold + 1), whole)
        )
        return x.small(ratio)
    end
    -- With the idle time up to `now` stored; `cooling` microseconds fill any store.
    local function rested(stored, free, part, den, refill, full, cooling)
        if free > now or free == now and part > 0 then
            return stored, free, part
        end
        local idle = now - free
        if idle > cooling then
            return full, now, 0
        end
        -- The part of a nanosecond that had begun is not stored.
        local begun = quotient(part + den - 1, den)
        return min(full, stored + (idle * 1000 - begun) * refill), now, 0
    end
    local function put(key, stored, free, part)
        local forgettable = free + quotient(full - stored, 1000 * refill) + 2
        keep(key, mine .. pack('<dddd', now, stored, free, part), forgettable)
    end

    return function(key, op, commit)
        local taken, span, span_part = number(), number(), number()
        local bound, bound_part = number(), number()
        local value = attempt('GET', key)
        local stored, free, part, moved = full, 0, 0, false
        local written
        if value and #value == size and sub(value, 1, size - 32) == mine then
            written, stored, free, part = unpack('<dddd', value, size - 31)
            -- The clock was set back: nobody waits longer than before, or than a warm-up takes.
            if written > now and free > now + cooling then
                free, moved = now + max(free - written, cooling), true
            end
        elseif value then
            local old, at = false, 0
            if type(value) == 'string' then
                old, at = header(value, mine)
            end
            if old == false or old and #value ~= at + 31 then
                return nil, fault(value)
            elseif old then
                written, stored, free, part = unpack('<dddd', value, at)
                stored, free, part = rested(stored, free, part, old[1], old[2], old[3], old[4])
                -- As warm as before, and everyone keeps his turn.
                stored = min(share(stored, full, old[3]), full)
                local ns = quotient(part, old[1])
                local x = exact()
                local rest = x.times(x.big(part - ns * old[1]), x.big(den))
                part = ns * den + x.small(x.divide_up(rest, x.big(old[1])))
                if part >= parts then
                    free, part = free + 1, part - parts
                end
                moved = true
            end
        end

        local s, f, p = rested(stored, free, part, den, refill, full, cooling)
        bound = bound < 0 and -1 or now + bound
        local ok = f < bound or f == bound and p <= bound_part
        if commit == nil then
            return ok
        end
        if op == TAKE and ok and commit or op == ABSORB and span + span_part > 0 then
            local left = max(s - taken, 0)
            local more = extra(s) - extra(left)
            local rest = fmod(more, 1000)
            local after, after_part = f + span + (more - rest) / 1000, p + span_part + rest * den
            while after_part >= parts do
                after, after_part = after + 1, after_part - parts
            end
            if after >= MOST then
                after, after_part = MOST, 0
            end
            put(key, left, after, after_part)
            moved = false
            if op == ABSORB then
                stored, free, part = left, after, after_part
            end
        elseif op == REFUND then
            stored, free, part = s, f, p
            free, part = free - span, part - span_part
            if part < 0 then
                free, part = free - 1, part + parts
            end
            if free < now then
                free, part = now, 0
            end
            moved = true
        elseif op == RESET then
            stored, free, part = full, 0, 0
            call('DEL', key)
            moved = false
        end
        if moved then
            put(key, stored, free, part)
        end
        say(stored)
        say(free)
        say(part)
        return ok
    end
end
