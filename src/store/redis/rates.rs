//! The scripts of the algorithms that have a rate.
//!
//! A script never multiplies a rate by a cost. That is done here, in 128 bits, and the script gets
//! spans of time as microseconds and parts of one. Nor does it compute waits: it returns the state
//! it decided on, and the algorithm in Rust derives the decision from that.

use super::call::Call;
use super::interval::Interval;
use super::params::{BIGNUM_LUA, MAX_EXACT, checked_count, too_large, value_header};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{
    Algorithm, Charge, LeakyBucket, TokenBucket, WarmUp, WarmUpState, settings,
};
use crate::error::ConfigError;

pub(super) const BUCKET_LUA: &str = include_str!("lua/bucket.lua");
pub(super) const TOKEN_BUCKET_LUA: &str = include_str!("lua/token_bucket.lua");

impl Script for TokenBucket {
    fn prepared(self) -> Result<Self, ConfigError> {
        let mut listed = settings(&self).into_iter();
        if listed.any(|(setting, value)| {
            value.is_some() && ["debt", "refill_every"].contains(&setting.name)
        }) {
            return Err(ConfigError::Unsupported {
                what: "a bucket with a debt or with steps in a script",
                instead: "use `Cas` with the same Redis server as its store",
            });
        }
        let quota = self.quota();
        Interval::try_new(&quota)?;
        checked_count("burst", quota.capacity())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        /// How long a key that started with less than a full bucket is kept after it is full: a
        /// month, in microseconds, and for many times as long as it takes to fill. After that the
        /// next request starts with the initial tokens again.
        const MIN_TTL_US: u64 = 30 * 86_400 * 1_000_000;
        const FILLINGS: u64 = 1_000;

        let quota = self.quota();
        let interval = Interval::new(&quota);
        let used = self.missing_tokens();
        let (filling, _) = interval.to_micros(interval.parts_for_units(quota.capacity()));
        let longest = filling.saturating_mul(FILLINGS).min(MAX_EXACT);
        let min_ttl = if used > 0 { longest.max(MIN_TTL_US) } else { 0 };
        parts.push(Part {
            sources: &[BIGNUM_LUA, BUCKET_LUA, TOKEN_BUCKET_LUA],
            header: interval.value_header('t', quota.capacity()),
            params: interval
                .bucket_params(quota.capacity(), used, min_ttl)
                .to_vec(),
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        let quota = self.quota();
        let interval = Interval::new(&quota);
        let max_wait = match call {
            Call::Reserve(_, max_wait) => interval.parts_for_ns(max_wait),
            _ => interval
                .parts_for_units(self.queue_limit)
                .min(interval.parts_for_ns(self.max_wait)),
        };
        let fits = call.cost() <= quota.capacity();
        let bound = fits.then(|| interval.parts_for_units(quota.capacity()) + max_wait);
        let span = interval.parts_for_units(call.cost());
        let is_line = self.queue_limit > 0;
        args.push(
            interval
                .bucket_args(span, bound, 0)
                .and_taken_at(call, is_line),
        );
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let interval = Interval::new(&self.quota());
        Some(interval.to_exact_nanos(words.next_word()?, words.next_word()?))
    }
}

impl Script for LeakyBucket {
    fn prepared(self) -> Result<Self, ConfigError> {
        Interval::try_new(&self.quota())?;
        checked_count("burst", self.capacity_and_max_cost().0)?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (queue, charge) = (self.queue_limit, self.charge_mode);
        let (quota, interval) = (self.quota(), Interval::new(&self.quota()));
        // How many units an empty queue rests before it counts as never used.
        let idle = match charge {
            Charge::After => 0,
            Charge::Before => self.capacity_and_max_cost().0 - 1,
        };
        let (idle_us, idle_part) = interval.to_micros(interval.parts_for_units(idle));
        let [parts_per_us, depth, depth_part, ..] = interval.bucket_params(quota.capacity(), 0, 0);
        let queues = u64::from(queue.is_some());
        let charges_before = u64::from(charge == Charge::Before);
        parts.push(Part {
            sources: &[BIGNUM_LUA, BUCKET_LUA, include_str!("lua/leaky_bucket.lua")],
            header: interval.value_header('l', idle),
            params: vec![
                parts_per_us,
                depth,
                depth_part,
                queues,
                charges_before,
                idle_us,
                idle_part,
            ],
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        let quota = self.quota();
        let interval = Interval::new(&quota);
        let (queue, max_wait, charge) = (self.queue_limit, self.max_wait, self.charge_mode);
        let cost = call.cost();
        let queues = match call {
            Call::Take(_) | Call::Peek(_) | Call::PeekOf(..) | Call::Charge(_) => queue.is_some(),
            Call::Reserve(..) => true,
            Call::Refund(..)
            | Call::Cancel(..)
            | Call::Forgive(..)
            | Call::Ban(_)
            | Call::Reset => false,
        };
        // What a request waits for its own units if the queue is empty, and what is charged when it
        // is released.
        let (lead, span) = match charge {
            Charge::Before if queues && cost > 0 => (
                interval.parts_for_units(cost - 1),
                interval.parts_for_units(1),
            ),
            _ => (0, interval.parts_for_units(cost)),
        };
        let longest = match (call, queue) {
            _ if cost > self.capacity_and_max_cost().1 => None,
            (Call::Reserve(_, max_wait), _) => Some(interval.parts_for_ns(max_wait)),
            // A meter admits what stays within its capacity after it is charged.
            (_, None) => quota
                .capacity()
                .checked_sub(cost)
                .map(|free| interval.parts_for_units(free)),
            (_, Some(units)) => {
                let places = match charge {
                    Charge::After => units.saturating_sub(cost.saturating_sub(1)),
                    Charge::Before => units,
                };
                Some(
                    interval
                        .parts_for_units(places)
                        .min(interval.parts_for_ns(max_wait)),
                )
            }
        };
        let bound = longest.map(|longest| longest + span);
        let is_line = queue.is_some();
        args.push(
            interval
                .bucket_args(span, bound, lead)
                .and_taken_at(call, is_line),
        );
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let interval = Interval::new(&self.quota());
        Some(interval.to_exact_nanos(words.next_word()?, words.next_word()?))
    }
}

/// The store of a warm-up as integers for a script: a permit, the refill per nanosecond, the
/// threshold, the whole, and the microseconds that fill it.
fn warm_up_params(algorithm: &WarmUp) -> Option<[u64; 5]> {
    let permits = &algorithm.permits;
    let (refill, full) = (permits.refill_rate, permits.capacity);
    let cooldown = full / (1_000 * refill) + 2;
    let max_stored = u128::from(full) + u128::from(cooldown + 1) * 1_000 * u128::from(refill);
    // A permit worth more than the whole store takes all of it.
    let permit = permits.units_per_permit.min(MAX_EXACT);
    let params = [permit, refill, permits.threshold, full, cooldown];
    (max_stored <= u128::from(2 * MAX_EXACT)).then_some(params)
}

impl Script for WarmUp {
    fn prepared(self) -> Result<Self, ConfigError> {
        Interval::try_new(&self.quota())?;
        checked_count("limit", self.quota().limit())?;
        match warm_up_params(&self) {
            Some(_) => Ok(self),
            None => Err(too_large("warm_up", format!("{} ns", self.permits.warm_up))),
        }
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let den = self.quota().limit();
        let (cold_factor, ramp) = (self.permits.cold_factor, self.permits.warm_up);
        let [_, refill, threshold, full, cooldown] = warm_up_params(self).unwrap_or_default();
        parts.push(Part {
            sources: &[BIGNUM_LUA, include_str!("lua/warm_up.lua")],
            header: value_header('u', &[den, refill, full, cooldown]),
            params: vec![den, refill, threshold, full, cold_factor, ramp, cooldown],
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        let quota = self.quota();
        let interval = Interval::new(&quota);
        let [permit, ..] = warm_up_params(self).unwrap_or_default();
        let cost = call.cost();
        let (queue, max_wait, max_cost) = (self.queue_limit, self.max_wait, self.max_cost);
        let bound = match (call, queue) {
            _ if max_cost.is_some_and(|most| cost > most) => None,
            (Call::Reserve(_, max_wait), _) => Some(interval.parts_for_ns(max_wait)),
            (_, None) => Some(0),
            (_, Some(units)) => Some(
                interval
                    .parts_for_units(units)
                    .min(interval.parts_for_ns(max_wait)),
            ),
        };
        let permits = cost.saturating_mul(permit);
        let (span, span_part) = interval.to_micros(interval.parts_for_units(cost));
        let (bound, bound_part) = interval.bound(bound);
        let numbers = [permits, span, span_part, bound, bound_part];
        args.push(Args::new(numbers).and_taken_at(call, queue.is_some()));
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let stored = words.next_word()?;
        let interval = Interval::new(&self.quota());
        let next_free = interval.to_exact_nanos(words.next_word()?, words.next_word()?);
        Some(WarmUpState { stored, next_free })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::Quota;
    use crate::store::redis::script::call_args;

    #[test]
    fn no_moment_admits_a_cost_above_the_largest_of_a_warm_up() {
        let warm_up = WarmUp::new(Quota::per_second(2), Duration::from_secs(4)).max_cost(3);
        for (cost, is_admitted) in [(2, true), (3, true), (4, false)] {
            let args = call_args(&warm_up, Call::Take(cost));
            let is_never = args.contains("9007199254740991");
            assert_eq!(is_never, !is_admitted, "{args}");
        }
    }
}
