-- State: the newest cell, and the counts of the cells that matter, the newest first.
--   admitted if the sum of the counts + cost <= limit
local function sliding_grid()
    local mine = text()
    local limit, length, pad, counted = number(), number(), number(), number()
    local shape = '<' .. rep('d', counted + 1)
    local width = 8 * (counted + 1)
    local size = #mine + width

    -- Moves the counts on to the cell of `now`. The newest cell may lie ahead if the clock was set
    -- back; further ahead than a whole window it is brought back to that.
    local function place(state, length, pad, counted)
        local present = quotient(now + pad, length)
        local passed = present - state[1]
        if passed > 0 then
            for age = counted, 1, -1 do
                state[age + 1] = passed < age and state[age + 1 - passed] or 0
            end
            state[1] = present
            return false
        end
        state[1] = min(state[1], present + counted)
        return passed < -counted
    end
    local function used(state, counted)
        local sum = 0
        for age = 1, counted do
            sum = sum + state[age + 1]
        end
        return min(sum, MOST)
    end
    local function put(key, state)
        local newest
        for age = 1, counted do
            if state[age + 1] > 0 then
                newest = state[1] - age + 1
                break
            end
        end
        if newest then
            keep(key, mine .. pack(shape, spread(state)), (newest + counted) * length - pad)
        else
            call('DEL', key)
        end
    end

    return function(key, op, commit)
        local cost = number()
        local value = attempt('GET', key)
        local state, moved
        if value and #value == size and sub(value, 1, size - width) == mine then
            state = { unpack(shape, value, #mine + 1) }
            state[counted + 2] = nil
            moved = place(state, length, pad, counted)
        else
            state = { 0 }
            for age = 1, counted do
                state[age + 1] = 0
            end
            place(state, length, pad, counted)
            if value then
                local old, at = false, 0
                if type(value) == 'string' then
                    old, at = header(value, mine)
                end
                if old == false or old and #value ~= at + 8 * (old[3] + 1) - 1 then
                    return nil, fault(value)
                elseif old then
                    local was = { unpack('<' .. rep('d', old[3] + 1), value, at) }
                    place(was, old[1], old[2], old[3])
                    -- What counts now counts as taken now.
                    state[2] = used(was, old[3])
                    moved = state[2] > 0
                end
            end
        end

        local sum = used(state, counted)
        local ok = sum + cost <= limit
        if commit == nil then
            return ok
        end
        local changed = moved
        if op == TAKE then
            if ok and commit then
                local found = state[2]
                state[2] = found + cost
                put(key, state)
                state[2] = found
                changed = false
            end
        elseif op == REFUND then
            for age = 1, counted do
                local given = min(cost, state[age + 1])
                state[age + 1] = state[age + 1] - given
                cost = cost - given
                changed = changed or given > 0
            end
        elseif op == ABSORB then
            state[2] = min(state[2] + cost, MOST)
            changed = changed or cost > 0
        elseif op == RESET then
            changed = changed or sum > 0
            for age = 1, counted do
                state[age + 1] = 0
            end
        end
        if changed then
            put(key, state)
        end
        for place = 1, counted + 1 do
            say(state[place])
        end
        return ok
    end
end
