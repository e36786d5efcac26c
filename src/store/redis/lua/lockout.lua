-- State: how many blocks have ended, when the last one ended or when a ban ends, and the moment of the
-- newest attempt or ban, even if it was refunded; then the moment and the number of attempts, oldest first.
--   places = limit at level 0, else parole
--   full   = attempts >= places, since `seen`; then blocked until seen + block * 2^level, at most longest
--   admitted if not blocked and attempts + cost <= places
-- All parameters are in the header: a state has the same meaning to all that read it.
-- Arguments: the cost, and when it was taken if it is refunded, or how long a ban lasts.
algorithms.k = function(header, ...)
    -- Counts stay below this: half of MAX_INT, so that two of them can be added.
    local MAX_COUNT = 4503599627370496
    -- A ban is an operation of lockouts alone.
    local BAN = 6
    local MAX_LEVEL = 63
    local own_params = { ... }

    local function places(state, params)
        return state.level == 0 and params[1] or params[6]
    end
    local function clear(state)
        state.used, state.moments, state.counts = 0, {}, {}
    end
    local function read_state(value, state_offset)
        local state = { level = 0, until_at = 0, seen = 0 }
        clear(state)
        if value then
            state.level, state.until_at, state.seen = struct.unpack('<ddd', value, state_offset)
            for at = state_offset + 24, #value, 16 do
                local index = #state.moments + 1
                state.moments[index], state.counts[index] = struct.unpack('<dd', value, at)
                state.used = state.used + state.counts[index]
            end
        end
        return state
    end
    local function block_end(state, params)
        local length = math.min(params[3] * 2 ^ state.level, params[4])
        return math.max(state.seen + length, state.until_at)
    end
    local function end_block(state, at)
        state.level, state.until_at = math.min(state.level + 1, MAX_LEVEL), at
        clear(state)
    end
    -- Drops this many moments. All are moved at once: `table.remove` would move them once per moment.
    local function drop_oldest(state, count)
        if count == 0 then
            return
        end
        for index = 1, #state.moments do
            if index <= count then
                state.used = state.used - state.counts[index]
            end
            state.moments[index] = state.moments[index + count]
            state.counts[index] = state.counts[index + count]
        end
    end
    -- Drops the oldest attempts, so that at most `count` are left.
    local function keep_newest(state, count)
        local excess, dropped = state.used - count, 0
        while excess > 0 and excess >= state.counts[dropped + 1] do
            dropped = dropped + 1
            excess = excess - state.counts[dropped]
        end
        drop_oldest(state, dropped)
        if excess > 0 then
            state.counts[1], state.used = state.counts[1] - excess, state.used - excess
        end
    end
    -- Drops what has ended by `now`. Returns when the present block or ban ends, and whether there are
    -- as many attempts as start a block.
    local function advance(state, params)
        local at_now = math.max(now, state.seen)
        if state.used >= places(state, params) then
            local ends = block_end(state, params)
            if at_now < ends then
                return ends, true
            end
            end_block(state, ends)
        end
        local expired = 0
        while expired < #state.moments and state.moments[expired + 1] + params[2] <= at_now do
            expired = expired + 1
        end
        drop_oldest(state, expired)
        if state.level > 0 and at_now >= state.until_at + params[5] then
            state.level = 0
        end
        if state.level == 0 and at_now >= state.until_at then
            state.until_at = 0
        end
        return at_now < state.until_at and state.until_at or nil, false
    end
    local function save(key, state)
        local unused_at = state.until_at
        if state.used >= places(state, own_params) then
            unused_at = block_end(state, own_params) + own_params[5]
        else
            if state.level > 0 then
                unused_at = unused_at + own_params[5]
            end
            if state.used > 0 then
                unused_at = math.max(unused_at, state.seen + own_params[2])
            end
        end
        local packed = { struct.pack('<ddd', state.level, state.until_at, state.seen) }
        for index = 1, #state.moments do
            packed[index + 1] = struct.pack('<dd', state.moments[index], state.counts[index])
        end
        store(key, header, table.concat(packed), unused_at)
    end
    local function add_to_newest(state, cost)
        local last = #state.moments
        state.counts[last], state.used = state.counts[last] + cost, state.used + cost
    end
    -- All calls of a server use one clock, so an older `now` is that of a clock that was set back.
    local function push(state, cost)
        state.seen = math.max(state.seen, now)
        local last = #state.moments
        if state.moments[last] ~= state.seen then
            state.moments[last + 1], state.counts[last + 1] = state.seen, 0
        end
        add_to_newest(state, cost)
    end
    -- Frees `cost` of the attempts up to `taken_at`, newest first. Expired ones are dropped already,
    -- and during a block none expires.
    local function free(state, cost, taken_at)
        for index = #state.moments, 1, -1 do
            local moment = state.moments[index]
            if moment <= taken_at then
                local freed = math.min(cost, state.counts[index])
                state.counts[index], state.used = state.counts[index] - freed, state.used - freed
                cost = cost - freed
                if state.counts[index] == 0 then
                    table.remove(state.counts, index)
                    table.remove(state.moments, index)
                end
            end
        end
    end
    -- The moment of the attempt that completes `excess`; 0 if it is not one of these.
    local function moment_of(state, excess)
        if excess <= 0 then
            return 0
        end
        local sum = 0
        for index = 1, #state.moments do
            sum = sum + state.counts[index]
            if sum >= excess then
                return state.moments[index]
            end
        end
        return 0
    end

    return function(key, op, args, commit)
        local cost, taken_at, length = args[1], args[2], args[2]
        local value, state_offset, old_params, err = read_value(key, header, 24, nil, 16)
        if err then
            return nil, err
        end
        local state, dirty = read_state(value, state_offset), false
        if state.seen > now + (old_params or own_params)[2] then
            -- The clock was set back by more than a period: the newest attempt or ban moves to now.
            local span = state.seen - now
            state.seen, state.until_at = now, math.max(state.until_at - span, 0)
            for index = 1, #state.moments do
                state.moments[index] = math.max(state.moments[index] - span, 0)
            end
            dirty = true
        end
        if old_params then
            local ends, is_full = advance(state, old_params)
            if is_full then
                end_block(state, ends)
            else
                -- Fewer places must not start a block, which would have begun in the past.
                keep_newest(state, places(state, own_params) - 1)
            end
            dirty = true
        end
        local ends, is_full = advance(state, own_params)
        local room = ends and 0 or places(state, own_params) - state.used
        local admitted = cost <= room
        if commit == nil then
            return admitted
        end

        if op == REFUND then
            free(state, cost, taken_at)
            dirty = true
        elseif op == CHARGE then
            cost = math.min(cost, MAX_COUNT - state.used)
            if is_full then
                add_to_newest(state, cost)
            elseif cost > 0 then
                push(state, cost)
            end
            dirty = true
        elseif op == BAN then
            local banned_until = math.max(now + length, state.until_at, ends or 0)
            if is_full then
                end_block(state, banned_until)
            end
            state.until_at, state.seen = banned_until, math.max(state.seen, now)
            clear(state)
            dirty = true
        elseif op == RESET then
            state.level, state.until_at, state.seen = 0, 0, 0
            clear(state)
            dirty = true
        end
        if op ~= TAKE and op ~= PEEK then
            advance(state, own_params)
            cost = 0
        end
        -- What has to expire before this request fits or, if it is admitted, before the next one does.
        local needed = state.used + (admitted and 2 * cost or cost)
        push_reply(state.level)
        push_reply(state.until_at)
        push_reply(state.seen)
        push_reply(state.used)
        push_reply(state.moments[#state.moments] or 0)
        push_reply(moment_of(state, needed - own_params[1]))
        push_reply(moment_of(state, needed - places(state, own_params)))
        if op == TAKE and admitted and commit then
            push(state, cost)
            dirty = true
        end
        if dirty then
            save(key, state)
        end
        return admitted
    end
end
