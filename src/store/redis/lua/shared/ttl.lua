-- Time to live, in milliseconds, of a state that decides like a fresh one from `forgettable_at` on. The
-- key lives until the end of the period after the one of that moment: up to two periods longer. So its
-- expiry stays the same while that moment is in the same period, and the key of a bucket in use does
-- not disappear between two calls that are closer than a period.
local function ttl_ms(forgettable_at)
    local ttl = (forgettable_at - forgettable_at % EXPIRY_PERIOD + 2 * EXPIRY_PERIOD - now) / 1000
    return ttl - ttl % 1
end
