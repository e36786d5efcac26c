-- State: the head, then the entries. The head is: how many stored entries to skip, how many entries
-- there are, the total of the last expired entry, the time of the first entry, the time and the
-- total of the last entry. An entry is its time and the total of all costs up to it.
--   admitted if last_total - expired_total + cost <= limit
-- Entries are looked up in place: a decision reads and writes a few of them, however many there
-- are. Expired entries are cut off when they are half of what is stored.
-- Arguments: the cost, and when it was taken if it is refunded.
algorithms.s = function(header, limit, period)
    -- Totals stay below this: half of MAX_INT, so that two of them can be added.
    local MAX_TOTAL = 4503599627370496
    local entries_offset = #header + 48

    local function new_log()
        return { skip = 0, count = 0, expired_total = 0, first_at = 0, last_at = 0, last_total = 0 }
    end
    local function unpack_head(value, state_offset)
        local log = new_log()
        log.skip, log.count, log.expired_total, log.first_at, log.last_at, log.last_total =
            struct.unpack('<dddddd', value, state_offset)
        return log
    end
    local function pack_head(log)
        return struct.pack('<dddddd',
            log.skip, log.count, log.expired_total, log.first_at, log.last_at, log.last_total)
    end
    -- The log of a key, or an error, and its period if it is that of another configuration. The entries of
    -- a log beside others are in its `text`, and all of the value is written at once.
    local function load(key)
        local value = redis.pcall('GETRANGE', key, 0, entries_offset - 1)
        if type(value) == 'table' then
            return nil, read_error(value)
        elseif value == '' or #value == entries_offset and string.sub(value, 1, #header) == header then
            configurations = nil
            return value == '' and new_log() or unpack_head(value, #header + 1)
        end
        local state_offset, old_params, err
        value, state_offset, old_params, err = read_value(key, header, 48, nil, 16)
        if err or old_params and #old_params ~= 1 then
            return nil, err or CORRUPT
        end
        local log = value and unpack_head(value, state_offset) or new_log()
        log.text = value and string.sub(value, state_offset + 48) or ''
        return log, nil, old_params and old_params[1]
    end
    -- The time and the total of an entry, counted from 0.
    local function read_entry(key, log, index)
        local at = 16 * (log.skip + index)
        if log.text then
            return struct.unpack('<dd', log.text, at + 1)
        end
        at = entries_offset + at
        return struct.unpack('<dd', redis.call('GETRANGE', key, at, at + 15))
    end
    local function live_entries(key, log)
        if log.count == 0 then
            return ''
        elseif log.text then
            return string.sub(log.text, 16 * log.skip + 1, 16 * (log.skip + log.count))
        end
        local from = entries_offset + 16 * log.skip
        return redis.call('GETRANGE', key, from, from + 16 * log.count - 1)
    end
    -- The first entry from `low` to `high` - 1 for which `predicate` holds, or `high`.
    local function lower_bound(key, log, low, high, predicate)
        while low < high do
            local middle = math.floor((low + high) / 2)
            if predicate(read_entry(key, log, middle)) then
                high = middle
            else
                low = middle + 1
            end
        end
        return low
    end
    -- How many entries have expired at `now`.
    local function expired_count(key, log, span)
        if log.count == 0 or now < log.first_at + span then
            return 0
        elseif now >= log.last_at + span then
            return log.count
        end
        return lower_bound(key, log, 1, log.count, function(at)
            return now < at + span
        end)
    end
    local function drop_oldest(key, log, count)
        if count == 0 then
            return
        elseif count == log.count then
            log.skip, log.count, log.expired_total = 0, 0, 0
            return
        end
        local _, total = read_entry(key, log, count - 1)
        log.skip, log.count, log.expired_total = log.skip + count, log.count - count, total
        log.first_at = read_entry(key, log, 0)
    end
    local function save(key, log, entries)
        log.text = log.text and entries
        store(key, header, pack_head(log) .. entries, log.last_at + period)
    end
    local function write_head(key, log)
        if log.text then
            save(key, log, log.text)
            return
        end
        redis.call('SETRANGE', key, #header, pack_head(log))
        redis.call('PEXPIRE', key, ttl_ms(log.last_at + period))
    end
    -- Writes the last entry; the head is to be written next.
    local function write_last(key, log)
        local at, entry = 16 * (log.skip + log.count - 1), struct.pack('<dd', log.last_at, log.last_total)
        if log.text then
            log.text = string.sub(log.text, 1, at) .. entry
        else
            redis.call('SETRANGE', key, entries_offset + at, entry)
        end
    end
    -- Rewrites the value, with `span` subtracted from each time and `total` from each total.
    local function rewrite(key, log, span, total)
        local live, chunks = live_entries(key, log), {}
        for index = 0, log.count - 1 do
            local at, sum = struct.unpack('<dd', live, 16 * index + 1)
            chunks[index + 1] = struct.pack('<dd', math.max(at - span, 0), sum - total)
        end
        log.skip, log.expired_total, log.last_total = 0, log.expired_total - total, log.last_total - total
        log.first_at, log.last_at = math.max(log.first_at - span, 0), math.max(log.last_at - span, 0)
        save(key, log, table.concat(chunks))
    end
    local function append(key, log, cost)
        if log.count == 0 then
            log.skip, log.count, log.expired_total = 0, 1, 0
            log.first_at, log.last_at, log.last_total = now, now, cost
            save(key, log, struct.pack('<dd', now, cost))
            return
        end
        -- An equal or earlier time than the last entry's counts as that time.
        if log.last_at >= now then
            log.last_total = log.last_total + cost
        else
            log.count, log.last_at, log.last_total = log.count + 1, now, log.last_total + cost
        end
        write_last(key, log)
        if log.last_total > MAX_TOTAL then
            rewrite(key, log, 0, log.expired_total)
        elseif log.skip >= 64 and log.skip >= log.count then
            local live = live_entries(key, log)
            log.skip = 0
            save(key, log, live)
        else
            write_head(key, log)
        end
    end
    -- Takes over the log of a configuration with another period. What has expired under it must not
    -- return under a longer one.
    local function take_over(key, log, old_period, commit)
        drop_oldest(key, log, expired_count(key, log, old_period))
        log.text, log.skip = live_entries(key, log), 0
        if log.count == 0 or log.last_at + period <= now then
            log = new_log()
            log.text = ''
        end
        if commit ~= nil then
            store(key, header, pack_head(log) .. log.text, log.count > 0 and log.last_at + period or 0)
        end
        return log
    end

    -- Takes `cost` from the entries of up to `taken_at`, newest first, and keeps the later ones.
    local function refund_older(key, log, cost, count)
        local before = log.expired_total
        if count > 0 then
            local _, total = read_entry(key, log, count - 1)
            before = total
        end
        local refunded = math.min(cost, before - log.expired_total)
        if refunded == 0 then
            return
        end
        local live, entries, kept_total = live_entries(key, log), {}, log.expired_total
        for index = 0, log.count - 1 do
            local at, total = struct.unpack('<dd', live, 16 * index + 1)
            if index >= count then
                total = total - refunded
            else
                total = math.min(total, before - refunded)
            end
            if total > kept_total then
                if #entries == 0 then
                    log.first_at = at
                end
                entries[#entries + 1] = struct.pack('<dd', at, total)
                kept_total = total
            end
        end
        log.skip, log.count, log.last_total = 0, #entries, log.last_total - refunded
        save(key, log, table.concat(entries))
    end

    return function(key, op, args, commit)
        local cost, taken_at = args[1], args[2]
        local log, err, old_period = load(key)
        if err then
            return nil, err
        end
        if old_period then
            log = take_over(key, log, old_period, commit)
        end
        -- The clock was set back by more than a period: the newest entry moves to now.
        if log.count > 0 and log.last_at > now + period then
            rewrite(key, log, log.last_at - now, 0)
        end

        local expired = expired_count(key, log, period)
        local count = log.count - expired
        local before = log.expired_total
        if expired > 0 and count > 0 then
            local _, total = read_entry(key, log, expired - 1)
            before = total
        end
        local used = count > 0 and log.last_total - before or 0
        local admitted = cost <= limit - used
        if commit == nil then
            return admitted
        end

        local free_at = 0
        if op == TAKE or op == PEEK then
            if not admitted and cost <= limit then
                local target = before + used - (limit - cost)
                local found = lower_bound(key, log, expired, log.count, function(_, total)
                    return total >= target
                end)
                free_at = found < log.count and read_entry(key, log, found) or 0
            end
            push_reply(used)
            push_reply(count > 0 and log.last_at or 0)
            push_reply(free_at)
            if op == TAKE and admitted and commit then
                drop_oldest(key, log, expired)
                append(key, log, cost)
            end
            return admitted
        end

        drop_oldest(key, log, expired)
        if op == REFUND then
            local older = taken_at >= log.last_at and count
                or lower_bound(key, log, 0, count, function(at)
                    return at > taken_at
                end)
            local changed
            if older < count then
                refund_older(key, log, cost, older)
                count = log.count
                cost = 0
            end
            while cost > 0 and count > 0 do
                local before = log.expired_total
                if count > 1 then
                    local _, total = read_entry(key, log, count - 2)
                    before = total
                end
                local entry_cost = log.last_total - before
                if entry_cost > cost then
                    log.last_total = log.last_total - cost
                    cost = 0
                    write_last(key, log)
                else
                    cost = cost - entry_cost
                    count = count - 1
                    log.count = count
                    if count > 0 then
                        log.last_at, log.last_total = read_entry(key, log, count - 1)
                    end
                end
                changed = true
            end
            if changed and count > 0 then
                write_head(key, log)
            end
        elseif op == CHARGE then
            cost = math.min(cost, MAX_TOTAL - used)
            if cost > 0 then
                -- A full log adds to its newest entry, so that it does not grow.
                if log.count >= limit then
                    log.last_at = math.max(log.last_at, now)
                    if log.count == 1 then
                        log.first_at = log.last_at
                    end
                end
                append(key, log, cost)
            end
        elseif op == RESET then
            log.count = 0
        end
        count = log.count
        if count == 0 then
            remove(key, header)
        end
        push_reply(count > 0 and log.last_total - log.expired_total or 0)
        push_reply(count > 0 and log.last_at or 0)
        push_reply(0)
        return admitted
    end
end

others.s = function(header, params, args)
    return algorithms.s(header, MAX_INT, unpack(params)), args
end
