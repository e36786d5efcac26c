//! What a machine knows of the fleet.

use std::time::Duration;

use super::record::Reply;
use super::shape::NEVER;
use crate::clock::{Tick, nanos};

/// What all keys of a machine have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Nanoseconds between two exchanges.
    pub(super) interval: u64,
    /// The largest cost that can be admitted.
    pub(super) capacity: u64,
    /// Whether a machine may take its part of what is free before it has asked: `Synced`.
    pub(super) takes_ahead: bool,
    /// Whether units of the next slot become usable evenly over an interval, and not at once.
    pub(super) ripens: bool,
    /// The number of machines; 0 if not known.
    pub(super) machines: u64,
}

/// The store's clock as this machine knows it from an exchange: when that was sent, when its reply
/// came, and the store's time in between, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreTime {
    pub(super) sent: Tick,
    pub(super) received: Tick,
    pub(super) at: u64,
}

/// The last reply, when it came, and what was used beside what was granted since the report before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) reply: Reply,
    pub(super) at: Tick,
    /// The store's time of it, in microseconds.
    pub(super) store_at: u64,
    pub(super) used: u64,
}

impl Figures {
    /// Units of the fleet that are free at `now`, as far as this machine knows.
    pub(super) fn free(&self, rules: &Rules, now: Tick) -> u64 {
        let elapsed = nanos(now.since(self.at)) / 1_000;
        let refilled = self.reply.refilled(elapsed);
        let free = i128::from(self.reply.free) + i128::from(refilled);
        let free = free - i128::from(self.used);
        u64::try_from(free).unwrap_or(0).min(rules.capacity)
    }

    /// How long until `units` are free, as far as this machine knows.
    pub(super) fn wait_for(&self, rules: &Rules, units: u64, now: Tick) -> Duration {
        let Reply {
            free,
            wait,
            more,
            per_unit,
            ..
        } = self.reply;
        let missing =
            i128::from(units) + i128::from(self.used) - i128::from(free) - i128::from(more);
        let missing = u64::try_from(missing).unwrap_or(0);
        let total = match wait {
            // What is out may be given back in the next exchange.
            NEVER => rules.interval / 1_000,
            _ => wait.saturating_add(missing.saturating_mul(per_unit)),
        };
        let elapsed = nanos(now.since(self.at)) / 1_000;
        Duration::from_micros(total.saturating_sub(elapsed).max(1))
    }
}

impl StoreTime {
    /// The store's time at `moment`, or somewhat later, in microseconds, whatever the rates of the clocks.
    pub(super) fn store_time_of(&self, moment: Tick) -> u64 {
        let before = nanos(self.sent.since(moment)) / 1_000;
        let after = nanos(moment.since(self.sent)).div_ceil(1_000);
        (self.at + after + after.div_ceil(1_024)).saturating_sub(before - before / 1_024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        interval: 100_000_000,
        capacity: 100,
        takes_ahead: false,
        ripens: false,
        machines: 1,
    };

    fn at(micros: u64) -> Tick {
        Tick::from_nanos(micros * 1_000)
    }

    /// Seven units are free, five more after two milliseconds, and one more per millisecond after.
    fn figures(used: u64) -> Figures {
        let reply = Reply {
            free: 7,
            wait: 2_000,
            more: 5,
            per_unit: 1_000,
            ..Reply::default()
        };
        Figures {
            reply,
            at: at(1_000),
            store_at: 0,
            used,
        }
    }

    /// Shows promise 203.
    #[test]
    fn units_are_free_after_the_wait_and_not_before() {
        for (used, units) in (0..20).flat_map(|used| (8..40).map(move |units| (used, units))) {
            let known = figures(used);
            let wait = nanos(known.wait_for(&RULES, units, at(1_500)));
            let free = |nanos| known.free(&RULES, Tick::from_nanos(1_500_000 + nanos));
            assert!(free(wait) >= units, "{units} with {used}");
            assert!(free(wait - 1) < units, "{units} with {used}");
        }
        assert_eq!(figures(0).free(&RULES, at(1_000_000)), 100);
    }

    #[test]
    fn what_is_out_is_waited_for_until_the_next_exchange() {
        let mut known = figures(0);
        known.reply.wait = NEVER;
        let wait = |micros| known.wait_for(&RULES, 8, at(micros)).as_micros();
        assert_eq!([1_500, 101_500].map(wait), [99_500, 1]);
    }

    /// The rates of two clocks differ by less than a thousandth.
    #[test]
    fn the_time_of_the_store_is_told_somewhat_late() {
        let time = StoreTime {
            sent: at(10_000),
            received: at(10_500),
            at: 5_000_000,
        };
        let told =
            [10_000 - 2_048, 10_000, 10_000 + 2_048].map(|micros| time.store_time_of(at(micros)));
        assert_eq!(told, [5_000_000 - 2_046, 5_000_000, 5_000_000 + 2_050]);
    }
}
