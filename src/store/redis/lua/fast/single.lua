    -- Without tables and functions, which take as long as a command.
    local op, admitted
    op, ARGUMENTS = unpack('<dARGUMENT_DOUBLES', ARGV[args_start + 1])
    ON_CHANGE
    local is_fast, all_admit = op == TAKE, true
    local PLACES
    LIMITS
    if is_fast then
        if all_admit then
            WRITES
        end
        return pack('<ddREPLY_DOUBLES', now, all_admit and DONE or DENIED, PLACES)
    end
    undecided = { true }
