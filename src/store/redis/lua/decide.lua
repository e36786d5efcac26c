-- Every script ends with this file.
local settings = cjson.decode(ARGV[1])
local part_count = #settings
local function limits_of(settings)
    local limits = {}
    for part = 1, part_count do
        limits[part] = algorithms[letter_of(settings[part][1])](unpack(settings[part]))
    end
    return limits
end
local common_limits = limits_of(settings)

local replies, text, op, args, limits = { now }, nil, nil, nil, nil
for first_key = 1, #KEYS, part_count do
    local own_text = ARGV[#replies + 1] or ARGV[2]
    if own_text ~= text then
        local of_key
        text, op, args, of_key, units = own_text, unpack(cjson.decode(own_text))
        limits = of_key and limits_of(of_key) or common_limits
    end
    reply, is_no_use = { DONE }, units and op == REFUND
    local admitted, err = true, nil
    -- All admit, or nothing is taken. So all limits but the first are asked before anything is written, and the
    -- first one takes only if they admit.
    for part = 2, part_count do
        local part_admits, part_err = limits[part](KEYS[first_key + part - 1], op, args[part], nil)
        admitted, err = admitted and part_admits, err or part_err
    end
    for part = 1, part_count do
        if err then
            break
        end
        local key, part_admits = KEYS[first_key + part - 1], nil
        part_admits, err = limits[part](key, op, args[part], admitted)
        admitted = admitted and part_admits
        if op == RESET and configurations then
            configurations.make_newest(key)
        end
        if units and configurations and not err and (op == TAKE and admitted or op > PEEK) then
            configurations.count_under_others(key, op, args[part])
        end
    end
    if err then
        reply = { err }
    elseif op == TAKE and not admitted then
        reply[1] = DENIED
    end
    replies[#replies + 1] = reply
end
return replies
