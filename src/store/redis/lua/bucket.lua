-- What the token bucket, the leaky meter and the leaky queue share: when the bucket is unused
-- again, or the line free.
--
-- State: when it was written (microseconds), and when it is due: microseconds, and parts of one.
-- A microsecond has 1000 * den parts, where W/L = num/den nanoseconds in lowest terms, so every
-- moment is a whole number of parts and nothing is rounded.
--   after = max(due, now) + span of the cost
--   admitted if after <= now + bound, where the caller has worked out the bound
-- A negative bound admits nothing. With an `idle` span, a cost has a lead too (see
-- leaky_bucket.lua), and what is due stays in the past until it is `idle` ago; 0 is never.
local function bucket(rescaled, idle, idle_part)
    local mine = text()
    local parts, depth, depth_part = number(), number(), number()
    local gone, gone_part, rest = number(), number(), number()
    local size = #mine + 24
    local begun = gone + gone_part > 0
    local fresh = idle and 0 or now + gone

    -- The first microsecond at which a line free since then is one never used.
    local function unused_at(due, part)
        if due + part == 0 then
            return 0
        end
        return due + idle + ceil((part + idle_part) / parts)
    end
    local function put(key, due, part)
        if idle then
            keep(key, mine .. pack('<ddd', now, due, part), unused_at(due, part))
        elseif due > now or part > 0 and due == now or begun then
            local forgettable = due + rest + (part > 0 and 1 or 0)
            keep(key, mine .. pack('<ddd', now, due, part), max(forgettable, now + 1))
        else
            call('DEL', key)
        end
    end

    return function(key, op, commit)
        local lead, lead_part = 0, 0
        if idle then
            lead, lead_part = number(), number()
        end
        local span, span_part = numbers[read + 1], numbers[read + 2]
        local bound, bound_part = numbers[read + 3], numbers[read + 4]
        read = read + 4
        local value = attempt('GET', key)
        local due, part, moved, written = fresh, gone_part, false, 0
        if value and #value == size and sub(value, 1, size - 24) == mine then
            written, due, part = unpack('<ddd', value, size - 23)
            -- The clock was set back: no more is owed than was, and where nothing was, no more than
            -- a bucket that is used up.
            if written > now then
                local owed, owed_part = due - written, part
                if owed < depth or owed == depth and part < depth_part then
                    owed, owed_part = depth, depth_part
                end
                if due > now + owed or due == now + owed and part > owed_part then
                    due, part, moved = now + owed, owed_part, true
                end
            end
        elseif value then
            local old, at = false, 0
            if type(value) == 'string' then
                old, at = header(value, mine)
            end
            if old == false or old and #value ~= at + 23 then
                return nil, fault(value)
            elseif old then
                written, due, part = unpack('<ddd', value, at)
                due, part = rescaled(due, part, old, mine, gone, gone_part)
                moved = true
            end
        end

        -- The server may be late to forget it.
        if idle and unused_at(due, part) <= now then
            due, part = 0, 0
        end
        local after, after_part = due, part
        if lead + lead_part > 0 and due + part > 0 then
            after, after_part = due + lead, part + lead_part
            if after_part >= parts then
                after, after_part = after + 1, after_part - parts
            end
        end
        if after < now then
            after, after_part = now, 0
        end
        after, after_part = after + span, after_part + span_part
        if after_part >= parts then
            after, after_part = after + 1, after_part - parts
        end
        if after >= MOST then
            after, after_part = MOST, 0
        end
        bound = bound < 0 and -1 or now + bound
        local ok = after < bound or after == bound and after_part <= bound_part
        if commit == nil then
            return ok
        end

        if op == TAKE then
            if ok and commit then
                put(key, after, after_part)
                moved = false
            end
        elseif op == REFUND then
            -- Back to a state never used, but not past it.
            local unused, unused_part = now, 0
            if idle then
                unused, unused_part = now - idle, -idle_part
                if unused_part < 0 then
                    unused, unused_part = unused - 1, unused_part + parts
                end
                if unused < 0 then
                    unused, unused_part = 0, 0
                end
            end
            if due > unused or due == unused and part >= unused_part then
                due, part = due - span, part - span_part
                if part < 0 then
                    due, part = due - 1, part + parts
                end
                if due < unused or due == unused and part < unused_part then
                    due, part = unused, unused_part
                end
                moved = true
            end
        elseif op == ABSORB then
            if span + span_part > 0 then
                due, part, moved = after, after_part, true
            end
        elseif op == RESET then
            due, part, moved = fresh, gone_part, true
        end
        if moved then
            put(key, due, part)
        end
        answer[said + 1], answer[said + 2] = due, part
        said = said + 2
        return ok
    end
end

-- What a change of quota needs.
local function exchange(old, mine)
    local x = exact()
    local big, plus, times, divide = x.big, x.plus, x.times, x.divide
    -- A pace from the figures den, num (in parts of a microsecond: whole, rest) and a number of units.
    local function pace(figures)
        local parts = 1000 * figures[1]
        return {
            den = figures[1],
            parts = parts,
            num = plus(times(big(figures[2]), big(parts)), big(figures[3])),
            units = figures[4],
        }
    end
    x.from, x.to = pace(old), pace((header(mine, mine)))
    -- Parts into microseconds and parts.
    function x.split(count, parts)
        local whole, rest = divide(count, big(parts))
        return x.small(whole), x.small(rest)
    end
    -- What is used of the old bucket, in parts.
    function x.used(due, part)
        if due < now then
            return {}
        end
        return plus(times(big(due - now), big(x.from.parts)), big(part))
    end
    -- The parts that hold as many units at the new pace as `count` do at the old one.
    function x.exchanged(count)
        return x.divide_up(times(count, x.to.num), x.from.num)
    end
    return x
end
