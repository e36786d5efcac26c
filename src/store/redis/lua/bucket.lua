-- The conversions for a change of quota, by bignum.lua.
local function quota_change(old_params, header)
    local bn = bignum()
    local from_number, add, multiply, divide = bn.from_number, bn.add, bn.multiply, bn.divide
    -- The interval of a unit, from the parameters den, num (microseconds, parts) and units.
    local function interval(params)
        local parts_per_us = 1000 * params[1]
        return {
            den = params[1],
            parts_per_us = parts_per_us,
            num = add(multiply(from_number(params[2]), from_number(parts_per_us)), from_number(params[3])),
            units = params[4],
        }
    end
    bn.from, bn.to = interval(old_params), interval(header_params(header))
    -- Parts into microseconds and parts.
    function bn.split(count, parts_per_us)
        local whole, rest = divide(count, from_number(parts_per_us))
        return bn.to_number(whole), bn.to_number(rest)
    end
    -- The parts that are used of the old bucket.
    function bn.used(due, part)
        if due < now then
            return {}
        end
        return add(multiply(from_number(due - now), from_number(bn.from.parts_per_us)), from_number(part))
    end
    -- The parts at the new interval that are worth as many units as `count` parts at the old one.
    local function convert(count)
        return bn.divide_up(multiply(count, bn.to.num), bn.from.num)
    end
    -- The line in which as much waits as in the old one.
    function bn.convert_line(due, part)
        local whole, rest = bn.split(convert(bn.used(due, part)), bn.to.parts_per_us)
        return math.min(now + whole, MAX_INT), rest
    end
    -- The same moment in parts of the new interval, rounded up.
    function bn.convert_moment(due, part)
        part = bn.rescale_part(part, bn.from.den, bn.to.den)
        if part >= bn.to.parts_per_us then
            return due + 1, part - bn.to.parts_per_us
        end
        return due, part
    end
    -- The bucket in which as much is used as in the old one, but no longer than before, or than ten empty ones of
    -- `depth` need.
    function bn.convert_used(due, part, depth, depth_part)
        local function is_earlier(left, left_part, right, right_part)
            return left < right or left == right and left_part < right_part
        end
        local before, before_part = bn.convert_moment(due, part)
        local longest, longest_part = now, 0
        for _ = 1, 10 do
            longest, longest_part = longest + depth, longest_part + depth_part
            if longest_part >= bn.to.parts_per_us then
                longest, longest_part = longest + 1, longest_part - bn.to.parts_per_us
            end
        end
        if is_earlier(longest, longest_part, before, before_part) then
            longest, longest_part = before, before_part
        end
        due, part = bn.convert_line(due, part)
        if is_earlier(longest, longest_part, due, part) then
            return longest, longest_part
        end
        return due, part
    end
    return bn
end

-- What the token bucket, the leaky bucket and GCRA share: the moment at which the bucket is unused
-- again, or the queue is empty.
--
-- State: when it was written (microseconds), and when it is due: microseconds, and parts of one.
-- A microsecond has 1000 * L parts at a limit of L, so every moment is an integer number of parts and nothing
-- is rounded. A unit has as many parts as the period has nanoseconds.
--   after = max(due, now) + span of the cost
--   admitted if after <= now + bound; the caller computes the bound
-- A bound of MAX_INT admits nothing. With an `idle` span, each cost also has a lead (see
-- leaky_bucket.lua), and `due` stays in the past until it is `idle` ago; 0 means never used. `rescale` converts
-- the state of another configuration.
-- Arguments: the span of the cost, the bound and the lead, each in microseconds and parts, and when the cost was
-- taken if it is refunded.
local function bucket(header, parts_per_us, depth, depth_part, initial_used, initial_used_part, min_ttl,
    rescale, idle, idle_part)
    local starts_used = initial_used + initial_used_part > 0
    local fresh_due = idle and 0 or now + initial_used

    -- The first microsecond from which a queue that emptied at `due` counts as never used.
    local function idle_from(due, part)
        if due + part == 0 then
            return 0
        end
        return due + idle + math.ceil((part + idle_part) / parts_per_us)
    end
    local function save(key, due, part)
        if idle then
            store(key, header, struct.pack('<ddd', now, due, part), idle_from(due, part))
        elseif due > now or part > 0 and due == now or starts_used then
            local unused_at = due + min_ttl + (part > 0 and 1 or 0)
            store(key, header, struct.pack('<ddd', now, due, part), math.max(unused_at, now + 1))
        else
            remove(key, header)
        end
    end

    return function(key, op, args, commit)
        local span, span_part, bound, bound_part, lead, lead_part, taken_at = unpack(args)
        local value, state_offset, old_params, err = read_value(key, header, 24)
        if err then
            return nil, err
        end
        local due, part, dirty = fresh_due, initial_used_part, false
        if value then
            local written
            written, due, part = struct.unpack('<ddd', value, state_offset)
            local change, full, full_part = nil, depth, depth_part
            if old_params then
                change = quota_change(old_params, header)
                -- Less than the depth of a leaky bucket, whose header has no depth.
                full, full_part = change.split(
                    change.multiply(change.from_number(change.from.units), change.from.num), change.from.parts_per_us)
            end
            if written > now then
                -- The clock was set back: the debt stays at most what it was, or what an exhausted
                -- bucket owes.
                local debt, debt_part = due - written, part
                if debt < full or debt == full and part < full_part then
                    debt, debt_part = full, full_part
                end
                if due > now + debt or due == now + debt and part > debt_part then
                    due, part, dirty = now + debt, debt_part, true
                end
            end
            if change then
                due, part = rescale(due, part, change)
                dirty = true
            end
        end

        -- The server may expire the key late.
        if idle and idle_from(due, part) <= now then
            due, part = 0, 0
        end
        local after, after_part = due, part
        if lead + lead_part > 0 and due + part > 0 then
            after, after_part = due + lead, part + lead_part
            if after_part >= parts_per_us then
                after, after_part = after + 1, after_part - parts_per_us
            end
        end
        if after < now then
            after, after_part = now, 0
        end
        after, after_part = after + span, after_part + span_part
        if after_part >= parts_per_us then
            after, after_part = after + 1, after_part - parts_per_us
        end
        if after >= MAX_INT then
            after, after_part = MAX_INT, 0
        end
        bound = bound < MAX_INT and now + bound or -1
        local admitted = after < bound or after == bound and after_part <= bound_part
        if commit == nil then
            return admitted
        end

        if op == TAKE then
            if admitted and commit then
                save(key, after, after_part)
                dirty = false
            end
        elseif op == REFUND then
            -- Back to a state that was never used, but not past it.
            local earliest, earliest_part = now, 0
            if idle then
                earliest, earliest_part = now - idle, -idle_part
                if earliest_part < 0 then
                    earliest, earliest_part = earliest - 1, earliest_part + parts_per_us
                end
                if earliest < 0 then
                    earliest, earliest_part = 0, 0
                end
            end
            -- Time has returned at most as much as has passed.
            local left = span - math.max(now - taken_at, 0)
            if left < 0 then
                left, span_part = 0, 0
            end
            if due > earliest or due == earliest and part >= earliest_part then
                due, part = due - left, part - span_part
                if part < 0 then
                    due, part = due - 1, part + parts_per_us
                end
                if due < earliest or due == earliest and part < earliest_part then
                    due, part = earliest, earliest_part
                end
                dirty = true
            end
        elseif op == CHARGE then
            if span + span_part > 0 then
                due, part, dirty = after, after_part, true
            end
        elseif op == RESET then
            due, part, dirty = fresh_due, initial_used_part, true
        end
        if dirty then
            save(key, due, part)
        end
        push_reply(due)
        push_reply(part)
        return admitted
    end
end

others.t = function(header, params, args)
    local bn = quota_change(params, header)
    local span, span_part =
        bn.split(bn.multiply(bn.from.num, bn.from_number(units)), bn.from.parts_per_us)
    return bucket(header, bn.from.parts_per_us, 0, 0, 0, 0, 0), { span, span_part, 0, 0, 0, 0, args[7] }
end
others.c, others.l = others.t, others.t
