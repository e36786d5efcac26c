-- Replaces the server's clock, for TIME and for expiry, in the script that follows. Takes two
-- arguments off the end of ARGV: whether writes are skipped, and the time in microseconds. The expiry
-- time of a key is stored under its name and `!`, rounded down to the earliest that a real server
-- could use.
local redis = (function()
    local real, fake = redis, tonumber(table.remove(ARGV))
    local is_dry = table.remove(ARGV) == '1'
    local function whole(x) return string.format('%.0f', x) end
    local function forget(key)
        local due = real.call('GET', key .. '!')
        if due and fake >= tonumber(due) then
            real.call('DEL', key, key .. '!')
        end
    end
    local function expire(key, ms)
        real.call('SET', key .. '!', whole(fake - fake % 1000 + ms * 1000))
    end
    local writes = { SET = true, PSETEX = true, DEL = true, SETRANGE = true, PEXPIRE = true }
    local function through(real_call)
        return function(name, key, ...)
            if name == 'TIME' then
                return { whole((fake - fake % 1000000) / 1000000), whole(fake % 1000000) }
            end
            forget(key)
            if is_dry and writes[name] then
                return 0
            elseif name == 'PSETEX' then
                local ms, value = ...
                ms = tonumber(ms)
                assert(ms >= 1 and ms % 1 == 0)
                expire(key, ms)
                return real_call('SET', key, value)
            elseif name == 'SET' then
                local value, px, ms = ...
                assert(px == 'PX' and ms >= 1 and ms % 1 == 0)
                expire(key, ms)
                return real_call('SET', key, value)
            elseif name == 'PEXPIRE' then
                local ms = ...
                assert(ms >= 1 and ms % 1 == 0)
                return expire(key, ms)
            elseif name == 'PTTL' then
                local due = real.call('GET', key .. '!')
                return due and math.floor((tonumber(due) - fake) / 1000) or -1
            elseif name == 'DEL' then
                return real_call('DEL', key, key .. '!')
            end
            return real_call(name, key, ...)
        end
    end
    return { call = through(real.call), pcall = through(real.pcall), error_reply = real.error_reply }
end)()
