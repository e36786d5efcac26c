-- State: the head, then the entries. The head is: how many stored entries to skip, how many entries
-- there are, the total of the last expired entry, the time of the first entry, the time and the
-- total of the last entry. An entry is its time and the total of all costs up to it.
--   admitted if last_total - expired_total + cost <= limit
-- Entries are looked up in place: a decision reads and writes a few of them, however many there
-- are. Expired entries are cut off when they are half of what is stored.
local function sliding_log()
    -- Totals stay below this: half of MAX_INT, so that two of them can be added.
    local MAX_TOTAL = 4503599627370496
    local own_header = next_arg()
    local limit, period = next_number(), next_number()
    local entries_offset = #own_header + 48

    local function new_log()
        return { skip = 0, count = 0, expired_total = 0, first_at = 0, last_at = 0, last_total = 0 }
    end
    local function unpack_head(value, header)
        local log = new_log()
        log.skip, log.count, log.expired_total, log.first_at, log.last_at, log.last_total =
            unpack('<dddddd', value, #header + 1)
        return log
    end
    local function pack_head(log)
        return own_header .. pack('<dddddd',
            log.skip, log.count, log.expired_total, log.first_at, log.last_at, log.last_total)
    end
    -- The head of a value with `header`; nil if there is none.
    local function read_head(key, header)
        local value = call('GETRANGE', key, 0, #header + 47)
        if sub(value, 1, #header) == header and #value == #header + 48 then
            return unpack_head(value, header)
        end
    end
    -- The log of a key and the key to write to; or an error; or the header of another configuration
    -- whose entries are to be copied.
    local function load_head(key)
        foreign_key, displaced, moved_from = nil, nil, nil
        local value = try_call('GETRANGE', key, 0, 127)
        if type(value) == 'table' then
            return nil, key, read_error(value)
        end
        local log = read_head(key, own_header)
        if log then
            return log, key
        end
        note_foreign(key, value)
        log = read_head(key .. own_header, own_header)
        if log then
            moved_from = key
            return log, key .. own_header
        elseif value == '' or value == NO_STATE then
            return new_log(), key
        end
        local old_params, state_offset = parse_header(value, own_header)
        if old_params == false or old_params and #old_params ~= 1 then
            return nil, key, CORRUPT
        end
        displaced, takes_over = foreign_name, old_params ~= nil
        local header = sub(value, 1, state_offset - 1)
        return new_log(), key, nil, old_params and old_params[1], header
    end
    -- The time and the total of an entry, counted from 0.
    local function read_entry(key, log, index)
        local at = entries_offset + 16 * (log.skip + index)
        return unpack('<dd', call('GETRANGE', key, at, at + 15))
    end
    -- The first entry from `low` to `high` - 1 for which `predicate` holds, or `high`.
    local function lower_bound(key, log, low, high, predicate)
        while low < high do
            local middle = floor((low + high) / 2)
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
        local ttl = ttl_ms(log.last_at + period)
        make_room(key, ttl)
        call('SET', key, pack_head(log) .. entries, 'PX', key_ttl(key, ttl))
    end
    local function write_head(key, log)
        call('SETRANGE', key, 0, pack_head(log))
        call('PEXPIRE', key, key_ttl(key, ttl_ms(log.last_at + period)))
    end
    -- Rewrites the value, with `span` subtracted from each time and `total` from each total.
    local function rewrite(key, log, span, total)
        local stored, chunks = call('GET', key), {}
        for index = 0, log.count - 1 do
            local at, sum = unpack('<dd', stored, entries_offset + 16 * (log.skip + index) + 1)
            chunks[index + 1] = pack('<dd', max(at - span, 0), sum - total)
        end
        log.skip, log.expired_total, log.last_total = 0, log.expired_total - total, log.last_total - total
        log.first_at, log.last_at = max(log.first_at - span, 0), max(log.last_at - span, 0)
        save(key, log, table.concat(chunks))
    end
    local function append(key, log, cost)
        if log.count == 0 then
            log.skip, log.count, log.expired_total = 0, 1, 0
            log.first_at, log.last_at, log.last_total = now, now, cost
            save(key, log, pack('<dd', now, cost))
            return
        end
        -- An equal or earlier time than the last entry's counts as that time.
        if log.last_at >= now then
            log.last_total = log.last_total + cost
        else
            log.count, log.last_at, log.last_total = log.count + 1, now, log.last_total + cost
        end
        local at = entries_offset + 16 * (log.skip + log.count - 1)
        call('SETRANGE', key, at, pack('<dd', log.last_at, log.last_total))
        if log.last_total > MAX_TOTAL then
            rewrite(key, log, 0, log.expired_total)
        elseif log.skip >= 64 and log.skip >= log.count then
            local from = entries_offset + 16 * log.skip
            local live_entries = call('GETRANGE', key, from, from + 16 * log.count - 1)
            log.skip = 0
            save(key, log, live_entries)
        else
            write_head(key, log)
        end
    end
    -- Copies the log of a configuration with another period. What has expired under it must not
    -- return under a longer one.
    local function migrate(key, old_period, old_header)
        local new_offset = entries_offset
        local log = read_head(key, old_header)
        if not log then
            return nil, CORRUPT
        end
        entries_offset = #old_header + 48
        drop_oldest(key, log, expired_count(key, log, old_period))
        local from = entries_offset + 16 * log.skip
        local live_entries = ''
        if log.count > 0 then
            live_entries = call('GETRANGE', key, from, from + 16 * log.count - 1)
        end
        entries_offset = new_offset
        log.skip = 0
        if log.count == 0 or log.last_at + period <= now then
            move_foreign()
            return new_log()
        end
        save(key, log, live_entries)
        return log
    end

    -- Takes `cost` from the entries of up to `taken_at`, newest first, and keeps the later ones.
    local function refund_older(key, log, cost, count)
        local before = log.expired_total
        if count > 0 then
            local _, total = read_entry(key, log, count - 1)
            before = total
        end
        local refunded = min(cost, before - log.expired_total)
        if refunded == 0 then
            return
        end
        local stored, entries, kept_total = call('GET', key), {}, log.expired_total
        for index = 0, log.count - 1 do
            local at, total = unpack('<dd', stored, entries_offset + 16 * (log.skip + index) + 1)
            if index >= count then
                total = total - refunded
            else
                total = min(total, before - refunded)
            end
            if total > kept_total then
                if #entries == 0 then
                    log.first_at = at
                end
                entries[#entries + 1] = pack('<dd', at, total)
                kept_total = total
            end
        end
        log.skip, log.count, log.last_total = 0, #entries, log.last_total - refunded
        save(key, log, table.concat(entries))
    end

    return function(key, op, commit)
        local cost, taken_at = next_number(), op == REFUND and next_number()
        local log, home, err, old_period, old_header = load_head(key)
        if old_period then
            log, err = migrate(key, old_period, old_header)
        end
        if err then
            return nil, err
        end
        -- The clock was set back by more than a period: the newest entry moves to now.
        if log.count > 0 and log.last_at > now + period then
            rewrite(home, log, log.last_at - now, 0)
        end

        local expired = expired_count(home, log, period)
        local count = log.count - expired
        local before = log.expired_total
        if expired > 0 and count > 0 then
            local _, total = read_entry(home, log, expired - 1)
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
                local found = lower_bound(home, log, expired, log.count, function(_, total)
                    return total >= target
                end)
                free_at = found < log.count and read_entry(home, log, found) or 0
            end
            push_reply(used)
            push_reply(count > 0 and log.last_at or 0)
            push_reply(free_at)
            if op == TAKE and admitted and commit then
                drop_oldest(home, log, expired)
                append(home, log, cost)
            end
            return admitted
        end

        drop_oldest(home, log, expired)
        if op == REFUND then
            local older = taken_at >= log.last_at and count
                or lower_bound(home, log, 0, count, function(at)
                    return at > taken_at
                end)
            local changed
            if older < count then
                refund_older(home, log, cost, older)
                count = log.count
                cost = 0
            end
            while cost > 0 and count > 0 do
                local before = log.expired_total
                if count > 1 then
                    local _, total = read_entry(home, log, count - 2)
                    before = total
                end
                local entry_cost = log.last_total - before
                if entry_cost > cost then
                    log.last_total = log.last_total - cost
                    cost = 0
                    local at = entries_offset + 16 * (log.skip + count - 1)
                    call('SETRANGE', home, at, pack('<dd', log.last_at, log.last_total))
                else
                    cost = cost - entry_cost
                    count = count - 1
                    log.count = count
                    if count > 0 then
                        log.last_at, log.last_total = read_entry(home, log, count - 1)
                    end
                end
                changed = true
            end
            if changed and count > 0 then
                write_head(home, log)
            end
        elseif op == CHARGE then
            cost = min(cost, MAX_TOTAL - used)
            if cost > 0 then
                -- A full log adds to its newest entry, so that it does not grow.
                if log.count >= limit then
                    log.last_at = max(log.last_at, now)
                    if log.count == 1 then
                        log.first_at = log.last_at
                    end
                end
                append(home, log, cost)
            end
        elseif op == RESET then
            log.count = 0
        end
        count = log.count
        if count == 0 then
            remove(home)
        end
        push_reply(count > 0 and log.last_total - log.expired_total or 0)
        push_reply(count > 0 and log.last_at or 0)
        push_reply(0)
        return admitted
    end
end
