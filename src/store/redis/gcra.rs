//! The script of governor's algorithm: a token bucket whose interval is truncated to nanoseconds.

use super::call::Call;
use super::interval::Interval;
use super::params::{BIGNUM_LUA, checked_count};
use super::rates::{BUCKET_LUA, TOKEN_BUCKET_LUA};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{Gcra, GcraState};
use crate::error::ConfigError;

impl Script for Gcra {
    fn prepared(self) -> Result<Self, ConfigError> {
        checked_count("burst", self.burst)?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (interval, burst) = (Interval::from_nanos(self.interval), self.burst);
        parts.push(Part {
            sources: &[BIGNUM_LUA, BUCKET_LUA, TOKEN_BUCKET_LUA],
            header: interval.value_header('c', burst),
            params: interval.bucket_params(burst, 0, 0).to_vec(),
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        let (interval, burst) = (Interval::from_nanos(self.interval), self.burst);
        let cost = call.cost();
        let bound = (cost <= burst).then(|| interval.parts_for_units(burst));
        let args_of = interval.bucket_args(interval.parts_for_units(cost), bound, 0);
        args.push(args_of.and_taken_at(call, false));
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (us, ns) = (words.next_word()?, words.next_word()?);
        let tat = us.saturating_mul(1_000).saturating_add(ns);
        Some(GcraState { tat })
    }
}
