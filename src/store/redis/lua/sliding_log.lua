-- State: the header, then where the entries begin (a number of entries), how many there are, the
-- total of the last one that has left, the first one's time, the last one's time and total; then
-- the entries, each its time and the total of all costs up to it.
--   admitted if last total - left + cost <= limit
-- Entries are looked up in place, so a decision reads and writes a few of them however many there
-- are. Those that have left are cut off when they are half of what is stored.
local function sliding_log()
    local function ttl(forgettable)
        return floor((forgettable - now) / 1000) + 2
    end
    local mine = text()
    local limit, period = number(), number()
    local top = #mine + 48

    local function list(key)
        local value = attempt('GETRANGE', key, 0, top - 1)
        if type(value) == 'table' then
            return nil, WRONG_TYPE
        elseif value == '' then
            return {}
        elseif sub(value, 1, #mine) == mine and #value == top then
            return { unpack('<dddddd', value, #mine + 1) }
        end
        local old = header(call('GETRANGE', key, 0, 63), mine)
        if old == false or old and #old ~= 1 then
            return nil, CORRUPT
        elseif old == nil then
            call('DEL', key)
            return {}
        end
        return nil, nil, old[1]
    end
    -- The time and the total of an entry, counted from 0.
    local function entry(key, log, index)
        local at = top + 16 * (log[1] + index)
        return unpack('<dd', call('GETRANGE', key, at, at + 15))
    end
    -- The first entry from `low` to `high` - 1 that is far enough, or `high`.
    local function first(key, log, low, high, enough)
        while low < high do
            local middle = floor((low + high) / 2)
            if enough(entry(key, log, middle)) then
                high = middle
            else
                low = middle + 1
            end
        end
        return low
    end
    -- How many entries are gone at `now`.
    local function gone(key, log, span)
        if not log[2] or log[2] == 0 or now < log[4] + span then
            return 0
        elseif now >= log[5] + span then
            return log[2]
        end
        return first(key, log, 1, log[2], function(at)
            return now < at + span
        end)
    end
    local function drop(key, log, count)
        if count == 0 then
            return
        elseif count == log[2] then
            log[1], log[2], log[3] = 0, 0, 0
            return
        end
        local _, total = entry(key, log, count - 1)
        log[1], log[2], log[3] = log[1] + count, log[2] - count, total
        log[4] = entry(key, log, 0)
    end
    local function write(key, log)
        call('SETRANGE', key, 0, mine .. pack('<dddddd', spread(log)))
        call('PEXPIRE', key, ttl(log[5] + period))
    end
    -- Writes everything anew, each time and total less so much.
    local function rewrite(key, log, span, total)
        local stored, texts = call('GET', key), {}
        for index = 0, log[2] - 1 do
            local at, sum = unpack('<dd', stored, top + 16 * (log[1] + index) + 1)
            texts[index + 1] = pack('<dd', max(at - span, 0), sum - total)
        end
        log[1], log[3], log[6] = 0, log[3] - total, log[6] - total
        log[4], log[5] = max(log[4] - span, 0), max(log[5] - span, 0)
        local value = mine .. pack('<dddddd', spread(log)) .. table.concat(texts)
        call('SET', key, value, 'PX', ttl(log[5] + period))
    end
    local function record(key, log, cost)
        if not log[2] or log[2] == 0 then
            local value = mine .. pack('<dddddddd', 0, 1, 0, now, now, cost, now, cost)
            call('SET', key, value, 'PX', ttl(now + period))
            log[1], log[2], log[3], log[4], log[5], log[6] = 0, 1, 0, now, now, cost
            return
        end
        -- The same moment, or one before the state's: the newest moment counts.
        if log[5] >= now then
            log[6] = log[6] + cost
        else
            log[2], log[5], log[6] = log[2] + 1, now, log[6] + cost
        end
        local at = top + 16 * (log[1] + log[2] - 1)
        call('SETRANGE', key, at, pack('<dd', log[5], log[6]))
        if log[6] > 4503599627370496 then
            rewrite(key, log, 0, log[3])
        elseif log[1] >= 64 and log[1] >= log[2] then
            local from = top + 16 * log[1]
            local live = call('GETRANGE', key, from, from + 16 * log[2] - 1)
            log[1] = 0
            local value = mine .. pack('<dddddd', spread(log)) .. live
            call('SET', key, value, 'PX', ttl(log[5] + period))
        else
            write(key, log)
        end
    end
    -- A log of another period: what has left under it must not come back under a longer one.
    local function carried(key, old)
        local ours, ours_top = mine, top
        mine = '~s' .. string.format('%.0f', old) .. '\n'
        top = #mine + 48
        local value = call('GETRANGE', key, 0, top - 1)
        if #value ~= top or sub(value, 1, #mine) ~= mine then
            mine, top = ours, ours_top
            return nil, CORRUPT
        end
        local log = { unpack('<dddddd', value, #mine + 1) }
        drop(key, log, gone(key, log, old))
        local from = top + 16 * log[1]
        local live = log[2] > 0 and call('GETRANGE', key, from, from + 16 * log[2] - 1) or ''
        mine, top = ours, ours_top
        log[1] = 0
        if log[2] == 0 or log[5] + period <= now then
            call('DEL', key)
            return {}
        end
        value = mine .. pack('<dddddd', spread(log)) .. live
        call('SET', key, value, 'PX', ttl(log[5] + period))
        return log
    end

    return function(key, op, commit)
        local cost = number()
        local log, wrong, old = list(key)
        if old then
            log, wrong = carried(key, old)
        end
        if wrong then
            return nil, wrong
        end
        -- The clock was set back by more than a period: the newest entry is of now.
        if log[2] and log[2] > 0 and log[5] > now + period then
            rewrite(key, log, log[5] - now, 0)
        end

        local left = gone(key, log, period)
        local count = (log[2] or 0) - left
        local before = log[3] or 0
        if left > 0 and count > 0 then
            local _, total = entry(key, log, left - 1)
            before = total
        end
        local used = count > 0 and log[6] - before or 0
        local ok = cost <= limit - used
        if commit == nil then
            return ok
        end

        local free = 0
        if op == TAKE or op == PEEK then
            if not ok and cost <= limit then
                local target = before + used - (limit - cost)
                local found = first(key, log, left, log[2], function(_, total)
                    return total >= target
                end)
                free = found < log[2] and entry(key, log, found) or 0
            end
            say(used)
            say(count > 0 and log[5] or 0)
            say(free)
            if op == TAKE and ok and commit then
                drop(key, log, left)
                record(key, log, cost)
            end
            return ok
        end

        drop(key, log, left)
        if op == REFUND then
            local written
            while cost > 0 and count > 0 do
                local before = log[3]
                if count > 1 then
                    local _, total = entry(key, log, count - 2)
                    before = total
                end
                local held = log[6] - before
                if held > cost then
                    log[6] = log[6] - cost
                    cost = 0
                    local at = top + 16 * (log[1] + count - 1)
                    call('SETRANGE', key, at, pack('<dd', log[5], log[6]))
                else
                    cost = cost - held
                    count = count - 1
                    log[2] = count
                    if count > 0 then
                        log[5], log[6] = entry(key, log, count - 1)
                    end
                end
                written = true
            end
            if written and count > 0 then
                write(key, log)
            end
        elseif op == ABSORB then
            cost = min(cost, 4503599627370496 - used)
            if cost > 0 then
                -- What comes on top of a full log joins the newest moment, or it would grow.
                if log[2] and log[2] >= limit then
                    log[5] = max(log[5], now)
                    if log[2] == 1 then
                        log[4] = log[5]
                    end
                end
                record(key, log, cost)
            end
        elseif op == RESET then
            log[2] = 0
        end
        count = log[2] or 0
        if count == 0 then
            call('DEL', key)
        end
        say(count > 0 and log[6] - log[3] or 0)
        say(count > 0 and log[5] or 0)
        say(0)
        return ok
    end
end
