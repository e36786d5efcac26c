-- What all scripts know of levels. Numbers are integers below 2^53.
local MAX_INT, fmod = 9007199254740991, math.fmod

-- floor(a * b / c) and the rest, if that is below 2^53 too. The rest of a product that is not is found bit by bit.
local function mul_div(a, b, c)
    local product = a * b
    if product <= MAX_INT then
        -- Of such numbers no quotient that is not whole is rounded to one that is.
        local whole = product / c
        whole = whole - whole % 1
        return whole, product - whole * c
    end
    local a_rest, b_rest = fmod(a, c), fmod(b, c)
    local whole, more, rest, bit = (a - a_rest) / c * b + a_rest * ((b - b_rest) / c), 0, 0, 2 ^ 52
    while bit >= 1 do
        more, rest = more + more, rest + rest
        if rest >= c then more, rest = more + 1, rest - c end
        if b_rest >= bit then
            b_rest, rest = b_rest - bit, rest - (c - a_rest)
            if rest >= 0 then more = more + 1 else rest = rest + c end
        end
        bit = bit / 2
    end
    return whole + more, rest
end

-- Units and a part of one, of which `limit.rate` units drain in `limit.period` parts: what is left.
local function drain(limit, units, part, elapsed)
    if elapsed <= 0 then return units, part end
    local rate, period = limit.rate, limit.period
    -- Far more than all of it.
    if elapsed * rate * 0.999 >= (units + 1) * period then return 0, 0 end
    local gone, gone_part = mul_div(elapsed, rate, period)
    units, part = units - gone, part - gone_part
    if part < 0 then units, part = units - 1, part + period end
    if units < 0 then return 0, 0 end
    return units, part
end
