//! The scripts of the algorithms that count in windows.

use super::call::Call;
use super::fast::FastPath;
use super::params::{BIGNUM_LUA, checked_count, checked_micros, value_header};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{Algorithm, FixedWindow, SlidingGrid, SlidingLog, SlidingWindow};
use crate::clock::Tick;
use crate::error::ConfigError;

/// A log is one value in the server, of at most twice as many entries as the limit.
const MAX_LOG_LIMIT: u64 = 1 << 16;

const SHARED_FIXED_WINDOW_LUA: &str = include_str!("lua/shared/fixed_window.lua");
const SHARED_SLIDING_WINDOW_LUA: &str = include_str!("lua/shared/sliding_window.lua");

/// What is added to a time before it is divided into windows.
const fn window_pad(length: u64, offset: u64) -> u64 {
    match offset % length {
        0 => 0,
        rest => length - rest,
    }
}

impl Script for FixedWindow {
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset, _) = self.window_params();
        checked_micros("period", length)?;
        checked_micros("offset", offset % length)?;
        checked_count("limit", self.quota().limit())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset, anchored) = self.window_params();
        let (length, pad) = (length / 1_000, window_pad(length, offset) / 1_000);
        let shape = [length, pad, u64::from(anchored)];
        let limit = self.quota().limit();
        parts.push(Part {
            function: "fixed_window",
            fast_path: Some(FastPath {
                shared: SHARED_FIXED_WINDOW_LUA,
                source: include_str!("lua/fast/fixed_window.lua"),
                first_param: 0,
            }),
            sources: &[
                SHARED_FIXED_WINDOW_LUA,
                include_str!("lua/fixed_window.lua"),
            ],
            header: value_header('f', &shape),
            params: vec![limit, shape[0], shape[1], shape[2]],
            state_words: 2,
        });
    }

    fn push_args(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
        args.push_taken_at(call, false);
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (window, used) = (words.next_word()?, words.next_word()?);
        let (_, _, anchored) = self.window_params();
        let window = match window.checked_sub(1) {
            Some(us) if anchored => us.saturating_mul(1_000) + 1,
            _ => window,
        };
        Some(Self::state(window, used))
    }
}

impl Script for SlidingLog {
    fn prepared(self) -> Result<Self, ConfigError> {
        checked_micros("period", self.quota().period_ns())?;
        let limit = self.quota().limit();
        if limit > MAX_LOG_LIMIT {
            return Err(ConfigError::out_of_range(
                "limit",
                limit,
                "at most 65536 for a log in Redis, or a strict SlidingGrid, which keeps the same promise",
            ));
        }
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let period = self.quota().period_ns() / 1_000;
        parts.push(Part {
            function: "sliding_log",
            fast_path: None,
            sources: &[include_str!("lua/sliding_log.lua")],
            header: value_header('s', &[period]),
            params: vec![self.quota().limit(), period],
            state_words: 3,
        });
    }

    fn push_args(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
        args.push_taken_at(call, false);
    }

    /// Not the whole log: two entries that give the same decision.
    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (used, last, free) = (words.next_word()?, words.next_word()?, words.next_word()?);
        let at = |us: u64| Tick::from_nanos(us.saturating_mul(1_000));
        // The units that have to expire before the cost fits expire with the entry at `free`.
        let enough = match free {
            0 => 0,
            _ => (used + words.cost()).saturating_sub(self.quota().limit()),
        };
        let entries = [(at(free), enough), (at(last), used - enough.min(used))];
        Some(Self::state(
            entries.into_iter().filter(|(_, cost)| *cost > 0),
        ))
    }
}

impl Script for SlidingWindow {
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset) = self.window_params();
        checked_micros("period", length)?;
        checked_micros("offset", offset % length)?;
        checked_count("limit", self.quota().limit())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset) = self.window_params();
        let shape = [length / 1_000, window_pad(length, offset) / 1_000];
        let limit = self.quota().limit();
        parts.push(Part {
            function: "sliding_window",
            fast_path: Some(FastPath {
                shared: SHARED_SLIDING_WINDOW_LUA,
                source: include_str!("lua/fast/sliding_window.lua"),
                first_param: 0,
            }),
            sources: &[
                BIGNUM_LUA,
                SHARED_SLIDING_WINDOW_LUA,
                include_str!("lua/sliding_window.lua"),
            ],
            header: value_header('w', &shape),
            params: vec![limit, shape[0], shape[1]],
            state_words: 3,
        });
    }

    fn push_args(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
        args.push_taken_at(call, false);
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        Some(Self::state(
            words.next_word()?,
            words.next_word()?,
            words.next_word()?,
        ))
    }
}

impl Script for SlidingGrid {
    /// Rounds cells up to whole microseconds, as the algorithm in process rounds to nanoseconds.
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset, _) = self.cell_params();
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
        Ok(self.with_cells_of(length, offset))
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset, counted) = self.cell_params();
        let shape = [length / 1_000, window_pad(length, offset) / 1_000, counted];
        let limit = self.quota().limit();
        parts.push(Part {
            function: "sliding_grid",
            fast_path: None,
            sources: &[include_str!("lua/sliding_grid.lua")],
            header: value_header('g', &shape),
            params: vec![limit, shape[0], shape[1], shape[2]],
            state_words: usize::try_from(counted + 1).unwrap_or(usize::MAX),
        });
    }

    fn push_args(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
        args.push_taken_at(call, false);
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (_, _, counted) = self.cell_params();
        let cell = words.next_word()?;
        let counts: Option<Vec<_>> = (0..counted).map(|_| words.next_word()).collect();
        Some(self.state_from_counts(cell, counts?.into_iter()))
    }
}
