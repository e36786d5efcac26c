//! What a script has to be told of governor's algorithm, which is a token bucket whose interval is cut
//! to whole nanoseconds.

use super::figures::{Call, EXACT, OPEN};
use super::rates::{BUCKET, Pace, QUICK, bucket_figures, depth_fits, span_and_bound};
use super::script::{Args, Part, Words, sealed::Script};
use crate::algorithm::Gcra;
use crate::error::ConfigError;

impl Script for Gcra {
    fn prepared(self) -> Result<Self, ConfigError> {
        let (interval, burst) = self.cells();
        depth_fits(Pace::of(interval), burst)?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (interval, burst) = self.cells();
        let pace = Pace::of(interval);
        parts.push(Part {
            name: "gcra",
            quick: &["local figures_at = 9\n", QUICK],
            sources: &[OPEN, EXACT, BUCKET, include_str!("lua/gcra.lua")],
            header: pace.header('c', burst),
            figures: bucket_figures(pace, burst, 0, 0).to_vec(),
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let (interval, burst) = self.cells();
        let (pace, cost) = (Pace::of(interval), call.cost());
        let bound = (cost <= burst).then(|| pace.span(burst));
        span_and_bound(pace, pace.span(cost), bound, args);
    }

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        let (us, ns) = (words.next()?, words.next()?);
        Some(Self::arriving_at(
            us.saturating_mul(1_000).saturating_add(ns),
        ))
    }
}
