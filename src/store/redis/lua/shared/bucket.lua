-- Charges a span of time to a bucket that is unused again at `due`. Returns whether the bound
-- admits it, and when the bucket is unused again afterwards.
local function bucket_step(due, part, span, span_part, bound, bound_part, parts_per_us)
    if due < now then
        due, part = now, 0
    end
    due, part = due + span, part + span_part
    if part >= parts_per_us then
        due, part = due + 1, part - parts_per_us
    end
    if due >= MAX_INT then
        due, part = MAX_INT, 0
    end
    return due < bound or due == bound and part <= bound_part, due, part
end
