//! The script of the lockout.

use super::call::Call;
use super::params::{checked_times, log_numbers, state_of, value_header};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{Algorithm, Lockout, LockoutState};
use crate::clock::Tick;
use crate::error::ConfigError;

/// A call reads and writes all attempts of a key.
const MAX_LIMIT: u64 = 1 << 12;

impl Script for Lockout {
    fn prepared(self) -> Result<Self, ConfigError> {
        checked_times(&self)?;
        if self.quota().limit() > MAX_LIMIT {
            return Err(ConfigError::out_of_range(
                "limit",
                self.quota().limit(),
                "at most 4096 for a lockout in Redis",
            ));
        }
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let quota = self.quota();
        let us = |ns: u64| ns / 1_000;
        let params = [
            quota.limit(),
            us(quota.period_ns()),
            us(self.block),
            us(self.longest_block()),
            us(self.forget),
            self.places(1),
        ];
        parts.push(Part {
            sources: &[include_str!("lua/lockout.lua")],
            header: value_header('k', &params),
            params: params.to_vec(),
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        args.push(match call {
            Call::Forgive(1.., _) if self.clears => Args::new([u64::MAX]).and_taken_at(call, false),
            Call::Ban(micros) => Args::new([0, micros]),
            _ => Args::cost(call).and_taken_at(call, false),
        });
    }

    /// Not all attempts: three moments that give the same decision.
    fn read_state(&self, words: &mut StateWords<'_>) -> Option<LockoutState> {
        let (level, until, seen) = (words.next_word()?, words.next_word()?, words.next_word()?);
        let (used, newest) = (words.next_word()?, words.next_word()?);
        let (free_of_limit, free_of_places) = (words.next_word()?, words.next_word()?);
        let level = u32::try_from(level).ok()?;
        let places = self.places(level);
        let fits = used.saturating_add(words.cost()) <= places;
        let needed = used.saturating_add(words.cost() * if fits { 2 } else { 1 });
        // What has to expire has done so with the attempt at this moment.
        let excess = |places: u64, free: u64| match free {
            0 => 0,
            _ => needed.saturating_sub(places).min(used),
        };
        let first = excess(self.quota().limit(), free_of_limit);
        let second = excess(places, free_of_places).max(first);
        let ns = |us: u64| us.saturating_mul(1_000).min(Tick::MAX.as_nanos());
        let attempts = [
            (ns(free_of_limit), first),
            (ns(free_of_places), second - first),
            (ns(newest), used - second),
        ];
        let mut numbers = vec![u64::from(level), ns(until), ns(seen)];
        numbers.extend(log_numbers(attempts));
        // No attempt was counted late.
        numbers.push(0);
        state_of(self, numbers)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::Quota;
    use crate::store::redis::script::decode_reply;

    #[test]
    fn the_next_denial_ends_when_the_attempt_that_is_in_the_way_expires() {
        let lockout = Lockout::new(Quota::per_minute(6));
        // Two attempts, and one ten seconds later. A request of two is admitted ten seconds after
        // that; for another one the first attempt has to expire.
        let (first, newest) = (1_000_000_000, 1_010_000_000);
        let outcome = [1, 0, 0, newest, 3, newest, first, first];
        let reply = decode_reply(&lockout, Call::Take(2), 1_020_000_000, &outcome);
        let denial = reply.expect("a reply").next_denial.expect("a denial");
        assert_eq!(denial.retry_after, Some(Duration::from_secs(40)));
    }
}
