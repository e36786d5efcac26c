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
