//! The scripts of the algorithms that count in windows.

use std::time::Duration;

use super::call::Call;
use super::params::{
    BIGNUM_LUA, checked_count, checked_micros, checked_times, log_numbers, state_of, value_header,
};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{
    Algorithm, FixedWindow, FixedWindowState, Portable, SlidingGrid, SlidingLog, SlidingWindow,
    SlidingWindowState,
};
use crate::error::ConfigError;

/// A log is one value in the server, of at most twice as many entries as the limit.
const MAX_LOG_LIMIT: u64 = 1 << 16;

/// Windows of whole microseconds, and a limit that a script can represent.
fn checked_windows<A: Portable>(algorithm: &A) -> Result<A, ConfigError> {
    checked_times(algorithm)?;
    checked_count("limit", algorithm.quota().limit())?;
    Ok(algorithm.clone())
}

impl Script for FixedWindow {
    fn prepared(self) -> Result<Self, ConfigError> {
        checked_windows(&self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, pad) = (self.windows.length() / 1_000, self.windows.padding / 1_000);
        let shape = [length, pad, u64::from(self.anchored)];
        let limit = self.quota().limit();
        parts.push(Part {
            sources: &[include_str!("lua/fixed_window.lua")],
            header: value_header('f', &shape),
            params: vec![limit, shape[0], shape[1], shape[2]],
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        args.push(Args::cost(call).and_taken_at(call, false));
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (window, used) = (words.next_word()?, words.next_word()?);
        let window = match window.checked_sub(1) {
            Some(us) if self.anchored => us.saturating_mul(1_000) + 1,
            _ => window,
        };
        Some(FixedWindowState { window, used })
    }
}

impl Script for SlidingLog {
    fn prepared(self) -> Result<Self, ConfigError> {
        let limit = self.quota().limit();
        if limit > MAX_LOG_LIMIT {
            return Err(ConfigError::out_of_range(
                "limit",
                limit,
                "at most 65536 for a log in Redis, or a strict SlidingGrid, which keeps the same promise",
            ));
        }
        checked_windows(&self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let period = self.quota().period_ns() / 1_000;
        parts.push(Part {
            sources: &[include_str!("lua/sliding_log.lua")],
            header: value_header('s', &[period]),
            params: vec![self.quota().limit(), period],
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        args.push(Args::cost(call).and_taken_at(call, false));
    }

    /// Not the whole log: two entries that give the same decision.
    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (used, last, free) = (words.next_word()?, words.next_word()?, words.next_word()?);
        let us = |us: u64| us.saturating_mul(1_000);
        // The units that have to expire before the cost fits expire with the entry at `free`.
        let enough = match free {
            0 => 0,
            _ => (used + words.cost()).saturating_sub(self.quota().limit()),
        };
        let entries = [(us(free), enough), (us(last), used - enough.min(used))];
        state_of(self, log_numbers(entries))
    }
}

impl Script for SlidingWindow {
    fn prepared(self) -> Result<Self, ConfigError> {
        checked_windows(&self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let shape = [self.windows.length(), self.windows.padding].map(|ns| ns / 1_000);
        let limit = self.quota().limit();
        parts.push(Part {
            sources: &[BIGNUM_LUA, include_str!("lua/sliding_window.lua")],
            header: value_header('w', &shape),
            params: vec![limit, shape[0], shape[1]],
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        args.push(Args::cost(call).and_taken_at(call, false));
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        Some(SlidingWindowState {
            window: words.next_word()?,
            previous: words.next_word()?,
            current: words.next_word()?,
        })
    }
}

impl Script for SlidingGrid {
    /// Rounds cells up to whole microseconds, as the algorithm in process rounds to nanoseconds.
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset) = (self.grid.length(), self.grid.offset());
        // If the cells do not divide the period, an offset below a microsecond has no meaning.
        let begun = offset % 1_000;
        let (length, offset) = (
            length.next_multiple_of(1_000),
            offset
                .checked_next_multiple_of(1_000)
                .unwrap_or(offset - begun),
        );
        checked_micros("period", length)?;
        checked_count("limit", self.quota().limit())?;
        let mut grid = self.offset(Duration::from_nanos(offset));
        grid.grid = grid.grid.with_length(length);
        Ok(grid)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, pad) = (self.grid.length() / 1_000, self.grid.padding / 1_000);
        let counted = self.counted_cells();
        let shape = [length, pad, counted];
        let limit = self.quota().limit();
        parts.push(Part {
            sources: &[include_str!("lua/sliding_grid.lua")],
            header: value_header('g', &shape),
            params: vec![limit, shape[0], shape[1], shape[2]],
        });
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        args.push(Args::cost(call).and_taken_at(call, false));
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let cell = words.next_word()?;
        let mut numbers = vec![cell];
        for ago in 0..self.counted_cells() {
            // Cells 0 to `cell` exist.
            let count = words.next_word()?;
            numbers.push(if ago <= cell { count } else { 0 });
        }
        state_of(self, numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    #[test]
    fn the_longest_offset_of_a_grid_is_rounded_down_to_a_microsecond() {
        let grid = SlidingGrid::new(Quota::per_second(1));
        let offset = |offset: Duration| {
            let prepared = grid.offset(offset).prepared();
            prepared.expect("figures that fit").grid.offset()
        };
        assert_eq!(offset(Duration::from_nanos(1_001)), 2_000);
        assert_eq!(offset(Duration::MAX), u64::MAX - u64::MAX % 1_000);
    }
}
