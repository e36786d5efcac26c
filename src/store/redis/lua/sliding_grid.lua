-- State: the newest cell, and the counts of the last cells, newest first.
--   admitted if the sum of the counts + cost <= limit
-- Arguments: the cost, and when it was taken if it is refunded.
algorithms.g = function(header, limit, length, pad, cell_count)
    local function state_len(cell_count)
        return 8 * (cell_count + 1)
    end
    local function len_of(params)
        return state_len(params[3])
    end
    local function unpack_state(value, state_offset, cell_count)
        local state = { struct.unpack('<' .. string.rep('d', cell_count + 1), value, state_offset) }
        -- The offset after the last number.
        state[cell_count + 2] = nil
        return state
    end
    -- Shifts the counts to the cell of `now`. The newest cell may lie ahead if the clock was set
    -- back. It is moved back to a whole window ahead at most. Returns whether it was moved back.
    local function advance(state, length, pad, cell_count)
        local current_cell = quotient(now + pad, length)
        local elapsed_cells = current_cell - state[1]
        if elapsed_cells > 0 then
            for age = cell_count, 1, -1 do
                state[age + 1] = elapsed_cells < age and state[age + 1 - elapsed_cells] or 0
            end
            state[1] = current_cell
            return false
        end
        state[1] = math.min(state[1], current_cell + cell_count)
        return elapsed_cells < -cell_count
    end
    local function used(state, cell_count)
        local sum = 0
        for age = 1, cell_count do
            sum = sum + state[age + 1]
        end
        return math.min(sum, MAX_INT)
    end
    local function save(key, state)
        local newest
        for age = 1, cell_count do
            if state[age + 1] > 0 then
                newest = state[1] - age + 1
                break
            end
        end
        if newest then
            local packed = struct.pack('<' .. string.rep('d', #state), unpack(state))
            store(key, header, packed, (newest + cell_count) * length - pad)
        else
            remove(key, header)
        end
    end

    return function(key, op, args, commit)
        local cost, taken_at = args[1], args[2]
        local value, state_offset, old_params, err =
            read_value(key, header, state_len(cell_count), len_of)
        if err then
            return nil, err
        end
        local state, dirty
        if value and not old_params then
            state = unpack_state(value, state_offset, cell_count)
            dirty = advance(state, length, pad, cell_count)
        else
            state = { 0 }
            for age = 1, cell_count do
                state[age + 1] = 0
            end
            advance(state, length, pad, cell_count)
            if value then
                local old_state = unpack_state(value, state_offset, old_params[3])
                advance(old_state, old_params[1], old_params[2], old_params[3])
                -- What counts now counts as taken now.
                state[2] = used(old_state, old_params[3])
                dirty = true
            end
        end

        local sum = used(state, cell_count)
        local admitted = sum + cost <= limit
        if commit == nil then
            return admitted
        end
        local changed = dirty
        if op == TAKE then
            if admitted and commit then
                local previous_count = state[2]
                state[2] = previous_count + cost
                save(key, state)
                state[2] = previous_count
                changed = false
            end
        elseif op == REFUND then
            -- Newest cost first, but none that is newer than the refunded one.
            local min_age = math.max(state[1] - quotient(taken_at + pad, length), 0)
            for age = 1 + min_age, cell_count do
                local refunded = math.min(cost, state[age + 1])
                state[age + 1] = state[age + 1] - refunded
                cost = cost - refunded
                changed = changed or refunded > 0
            end
        elseif op == CHARGE then
            state[2] = math.min(state[2] + cost, MAX_INT)
            changed = changed or cost > 0
        elseif op == RESET then
            changed = changed or sum > 0
            for age = 1, cell_count do
                state[age + 1] = 0
            end
        end
        if changed then
            save(key, state)
        end
        for index = 1, cell_count + 1 do
            push_reply(state[index])
        end
        return admitted
    end
end

others.g = function(header, params, args)
    return algorithms.g(header, MAX_INT, unpack(params)), args
end
