//! What a script has to be told of governor's algorithm, which is a token bucket whose interval is cut
//! to whole nanoseconds.

use super::params::{BIGNUM_LUA, Call, PRELUDE_LUA};
use super::rates::{
    BUCKET_FAST_LUA, BUCKET_LUA, Pace, bucket_params, check_depth, push_span_and_bound,
};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::Gcra;
use crate::error::ConfigError;

impl Script for Gcra {
    fn prepared(self) -> Result<Self, ConfigError> {
        let (interval, burst) = self.params();
        check_depth(Pace::of(interval), burst)?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (interval, burst) = self.params();
        let pace = Pace::of(interval);
        parts.push(Part {
            name: "gcra",
            quick: &["local figures_at = 9\n", BUCKET_FAST_LUA],
            sources: &[
                PRELUDE_LUA,
                BIGNUM_LUA,
                BUCKET_LUA,
                include_str!("lua/gcra.lua"),
            ],
            header: pace.header('c', burst),
            figures: bucket_params(pace, burst, 0, 0).to_vec(),
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let (interval, burst) = self.params();
        let (pace, cost) = (Pace::of(interval), call.cost());
        let bound = (cost <= burst).then(|| pace.span(burst));
        push_span_and_bound(pace, pace.span(cost), bound, args);
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (us, ns) = (words.next()?, words.next()?);
        Some(Self::with_tat(us.saturating_mul(1_000).saturating_add(ns)))
    }
}
