-- Parameters: parts_per_us
-- Arguments: span, span_part, bound, bound_part
bound_N = bound_N < 0 and -1 or now + bound_N
-- State: written_at, due, part
is_fast = not value or written_at <= now
if not value then
    due, part = now, 0
end
local after, after_part
admitted, after, after_part = bucket_step(due, part, span_N, span_part_N, bound_N, bound_part_N, parts_per_us_N)
-- Reply: due, part
-- Next: now, after, after_part
-- Unused at: after + (after_part > 0 and 1 or 0)
-- Same expiry: value and due - due % EXPIRY_PERIOD >= unused_at - unused_at % EXPIRY_PERIOD
