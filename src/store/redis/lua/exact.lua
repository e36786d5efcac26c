-- Whole numbers of any size, the lowest digit first. Only changes of quota, and comparisons too
-- close for doubles, come here: so all of it is one function until then.
local function exact()
    local BASE = 16777216
    local function big(x)
        local digits, n = {}, 0
        while x > 0 do
            local digit = fmod(x, BASE)
            n = n + 1
            digits[n] = digit
            x = (x - digit) / BASE
        end
        return digits
    end
    local function trimmed(a)
        while #a > 0 and a[#a] == 0 do
            a[#a] = nil
        end
        return a
    end
    -- As a double, saturated where it is not exact.
    local function small(a)
        local x = 0
        for i = #a, 1, -1 do
            x = x * BASE + a[i]
        end
        return min(x, MOST)
    end
    local function plus(a, b)
        local sum, carry = {}, 0
        for i = 1, max(#a, #b) do
            local s = (a[i] or 0) + (b[i] or 0) + carry
            carry = s >= BASE and 1 or 0
            sum[i] = s - carry * BASE
        end
        if carry > 0 then
            sum[#sum + 1] = carry
        end
        return sum
    end
    -- a - b, for b <= a.
    local function minus(a, b)
        local rest, borrow = {}, 0
        for i = 1, #a do
            local d = a[i] - (b[i] or 0) - borrow
            borrow = d < 0 and 1 or 0
            rest[i] = d + borrow * BASE
        end
        return trimmed(rest)
    end
    local function less(a, b)
        if #a ~= #b then
            return #a < #b
        end
        for i = #a, 1, -1 do
            if a[i] ~= b[i] then
                return a[i] < b[i]
            end
        end
        return false
    end
    local function times(a, b)
        local product = {}
        for i = 1, #a + #b do
            product[i] = 0
        end
        for i = 1, #a do
            local carry = 0
            for j = 1, #b do
                -- Below 2^48 + 2^25.
                local s = product[i + j - 1] + a[i] * b[j] + carry
                local digit = fmod(s, BASE)
                product[i + j - 1] = digit
                carry = (s - digit) / BASE
            end
            product[i + #b] = carry
        end
        return trimmed(product)
    end
    local function rough(a)
        local x = 0
        for i = #a, 1, -1 do
            x = x * BASE + a[i]
        end
        return x
    end
    -- The quotient and the remainder, by long division: doubles guess each digit, and a guess that is
    -- off by one is mended.
    local function divide(a, b)
        local ratio, rest, by = {}, {}, rough(b)
        for i = #a, 1, -1 do
            table.insert(rest, 1, a[i])
            trimmed(rest)
            local digit = min(floor(rough(rest) / by), BASE - 1)
            local product = times(b, big(digit))
            while less(rest, product) do
                digit = digit - 1
                product = minus(product, b)
            end
            rest = minus(rest, product)
            while not less(rest, b) do
                digit = digit + 1
                rest = minus(rest, b)
            end
            ratio[i] = digit
        end
        return trimmed(ratio), rest
    end
    local function divide_up(a, b)
        local ratio, rest = divide(a, b)
        return #rest > 0 and plus(ratio, { 1 }) or ratio
    end
    return {
        big = big,
        small = small,
        plus = plus,
        minus = minus,
        less = less,
        times = times,
        divide = divide,
        divide_up = divide_up,
    }
end
-- floor(a * b / c) of whole numbers.
local function share(a, b, c)
    local product = a * b
    if product <= MOST then
        return quotient(product, c)
    end
    local x = exact()
    return x.small((x.divide(x.times(x.big(a), x.big(b)), x.big(c))))
end
-- a * b < c * d. Products of doubles are right to 2^-52; what is closer is computed.
local function product_less(a, b, c, d)
    local left, right = a * b, c * d
    if left < right * 0.999999999999 then
        return true
    elseif left > right * 1.000000000001 then
        return false
    end
    local x = exact()
    return x.less(x.times(x.big(a), x.big(b)), x.times(x.big(c), x.big(d)))
end
