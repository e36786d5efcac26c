-- Redis::check: runs each command of the scripts once. Returns whether the key was marked, and the commands that the user may not run.
local key = KEYS[1]
local refused = {}
local failure

-- What servers of several versions say if a command is not allowed.
local refusals = { 'NOPERM', 'user executing the script', 'ACL failure in script' }
local function is_refused(text)
    for _, refusal in ipairs(refusals) do
        if string.find(text, refusal, 1, true) then
            return true
        end
    end
    return false
end

local function run(name, ...)
    local reply = redis.pcall(name, ...)
    local text = type(reply) == 'table' and reply.err
    if not text then
        return reply
    elseif is_refused(text) then
        refused[#refused + 1] = name
    else
        failure = failure or reply
    end
end

local mark = run('GET', key) == 'marked' and 'marked' or 'unmarked'
run('TIME')
run('PSETEX', key, 10000, 'check')
run('DEL', key)
if failure and #refused == 0 then
    return failure
end
table.insert(refused, 1, mark)
return refused
