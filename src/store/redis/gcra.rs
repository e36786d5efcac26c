//! The script of governor's algorithm: a token bucket whose interval is truncated to nanoseconds.

use super::call::Call;
use super::interval::Interval;
use super::params::BIGNUM_LUA;
use super::rates::{BUCKET_LUA, SHARED_BUCKET_LUA, TOKEN_BUCKET_LUA, bucket_fast_path};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::Gcra;
use crate::error::ConfigError;

impl Script for Gcra {
    fn prepared(self) -> Result<Self, ConfigError> {
        let (interval, burst) = self.params();
        Interval::from_nanos(interval).check_depth(burst)?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (interval, burst) = self.params();
        let interval = Interval::from_nanos(interval);
        parts.push(Part {
            function: "token_bucket",
            fast_path: Some(bucket_fast_path(0)),
            sources: &[BIGNUM_LUA, SHARED_BUCKET_LUA, BUCKET_LUA, TOKEN_BUCKET_LUA],
            header: interval.value_header('c', burst),
            params: interval.bucket_params(burst, 0, 0).to_vec(),
            state_words: 2,
        });
    }

    fn push_args(&self, call: Call, args: &mut Args) {
        let (interval, burst) = self.params();
        let (interval, cost) = (Interval::from_nanos(interval), call.cost());
        let bound = (cost <= burst).then(|| interval.parts_for_units(burst));
        interval.push_span_and_bound(interval.parts_for_units(cost), bound, args);
        args.push_taken_at(call, false);
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (us, ns) = (words.next_word()?, words.next_word()?);
        Some(Self::with_tat(us.saturating_mul(1_000).saturating_add(ns)))
    }
}
