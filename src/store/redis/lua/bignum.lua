-- Integers of any size, the lowest digit first. Only changes of quota, and comparisons too close
-- for doubles, use them: so all of it is one function, which is not built before it is called.
local function bignum()
    local BASE = 16777216
    local function from_number(x)
        local digits, n = {}, 0
        while x > 0 do
            local digit = math.fmod(x, BASE)
            n = n + 1
            digits[n] = digit
            x = (x - digit) / BASE
        end
        return digits
    end
    local function trim(a)
        while #a > 0 and a[#a] == 0 do
            a[#a] = nil
        end
        return a
    end
    local function add(a, b)
        local sum, carry = {}, 0
        for i = 1, math.max(#a, #b) do
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
    local function subtract(a, b)
        local remainder, borrow = {}, 0
        for i = 1, #a do
            local d = a[i] - (b[i] or 0) - borrow
            borrow = d < 0 and 1 or 0
            remainder[i] = d + borrow * BASE
        end
        return trim(remainder)
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
    local function multiply(a, b)
        local product = {}
        for i = 1, #a + #b do
            product[i] = 0
        end
        for i = 1, #a do
            local carry = 0
            for j = 1, #b do
                -- Below 2^48 + 2^25.
                local s = product[i + j - 1] + a[i] * b[j] + carry
                local digit = math.fmod(s, BASE)
                product[i + j - 1] = digit
                carry = (s - digit) / BASE
            end
            product[i + #b] = carry
        end
        return trim(product)
    end
    local function approximate(a)
        local x = 0
        for i = #a, 1, -1 do
            x = x * BASE + a[i]
        end
        return x
    end
    -- As a double, saturated where doubles are not exact.
    local function to_number(a)
        return math.min(approximate(a), MAX_INT)
    end
    -- The quotient and the remainder, by long division. Doubles estimate each digit; an estimate that
    -- is off by one is corrected.
    local function divide(a, b)
        local digits, remainder, divisor = {}, {}, approximate(b)
        for i = #a, 1, -1 do
            table.insert(remainder, 1, a[i])
            trim(remainder)
            local digit = math.min(math.floor(approximate(remainder) / divisor), BASE - 1)
            local product = multiply(b, from_number(digit))
            while less(remainder, product) do
                digit = digit - 1
                product = subtract(product, b)
            end
            remainder = subtract(remainder, product)
            while not less(remainder, b) do
                digit = digit + 1
                remainder = subtract(remainder, b)
            end
            digits[i] = digit
        end
        return trim(digits), remainder
    end
    local function divide_up(a, b)
        local digits, remainder = divide(a, b)
        return #remainder > 0 and add(digits, { 1 }) or digits
    end
    -- A part of a microsecond in units of 1/den nanoseconds, in units of 1/new_den. Whole nanoseconds
    -- are kept; the rest is rounded up.
    local function rescale_part(part, den, new_den)
        local ns = quotient(part, den)
        local rest = multiply(from_number(part - ns * den), from_number(new_den))
        return ns * new_den + to_number(divide_up(rest, from_number(den)))
    end
    return {
        from_number = from_number,
        to_number = to_number,
        add = add,
        subtract = subtract,
        less = less,
        multiply = multiply,
        divide = divide,
        divide_up = divide_up,
        rescale_part = rescale_part,
    }
end
-- floor(a * b / c) of integers.
local function mul_div(a, b, c)
    local product = a * b
    if product <= MAX_INT then
        return quotient(product, c)
    end
    local bn = bignum()
    return bn.to_number((bn.divide(bn.multiply(bn.from_number(a), bn.from_number(b)), bn.from_number(c))))
end
-- a * b < c * d. Larger products of doubles have a relative error of 2^-52; close ones are computed exactly.
local function product_less(a, b, c, d)
    local left, right = a * b, c * d
    local is_exact = math.max(left, right) <= MAX_INT
    if is_exact or left < right * 0.999999999999 or left > right * 1.000000000001 then
        return left < right
    end
    local bn = bignum()
    return bn.less(bn.multiply(bn.from_number(a), bn.from_number(b)), bn.multiply(bn.from_number(c), bn.from_number(d)))
end
