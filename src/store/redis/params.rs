//! What a script has to be told of each algorithm, and how its answer reads.
//!
//! A script never multiplies a rate with a cost: that is done here, in 128 bits, and it is told
//! spans of time as microseconds and parts of one. Nor does it work out what a caller is told: it
//! answers the state that it decided upon, and the decision is what the algorithm itself, in Rust,
//! says about that state.

use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{Algorithm, All, FixedWindow, SlidingGrid, SlidingLog, SlidingWindow};
use crate::clock::Tick;
use crate::error::ConfigError;

/// Spans, counts and parts stay below this, so that a script can add two of them exactly.
pub(super) const MAX_EXACT: u64 = 1 << 52;
/// A log is one value in the server, of at most twice as many entries as the limit.
const MAX_LOG_LIMIT: u64 = 1 << 16;

pub(super) const PRELUDE_LUA: &str = include_str!("lua/open.lua");
pub(super) const BIGNUM_LUA: &str = include_str!("lua/exact.lua");

/// What is asked of the state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub enum Call {
    Take(u64),
    /// Wait at most so many nanoseconds.
    Reserve(u64, u64),
    Peek(u64),
    Refund(u64),
    Charge(u64),
    Reset,
}

impl Call {
    /// The number of the operation in a script. What takes nothing is a look.
    pub(super) const fn op(self) -> i64 {
        match self {
            Self::Take(0)
            | Self::Reserve(0, _)
            | Self::Refund(0)
            | Self::Charge(0)
            | Self::Peek(_) => 2,
            Self::Take(_) | Self::Reserve(..) => 1,
            Self::Refund(_) => 3,
            Self::Charge(_) => 4,
            Self::Reset => 5,
        }
    }

    pub(super) const fn cost(self) -> u64 {
        match self {
            Self::Take(cost)
            | Self::Reserve(cost, _)
            | Self::Peek(cost)
            | Self::Refund(cost)
            | Self::Charge(cost) => cost,
            Self::Reset => 0,
        }
    }
}

pub(super) fn too_large(field: &'static str, value: impl std::fmt::Display) -> ConfigError {
    ConfigError::out_of_range(
        field,
        value,
        "a figure that a Redis script can count with: 2^52 units, microseconds, or billionths of one",
    )
}

/// A span in whole microseconds, the only ones that windows in Redis may have.
fn micros(field: &'static str, ns: u64) -> Result<u64, ConfigError> {
    if ns % 1_000 != 0 {
        return Err(ConfigError::out_of_range(
            field,
            format!("{ns} ns"),
            "whole microseconds, which is what Redis counts in",
        ));
    }
    let us = ns / 1_000;
    if us > MAX_EXACT {
        return Err(too_large(field, format!("{us} us")));
    }
    Ok(us)
}

pub(super) fn count(field: &'static str, count: u64) -> Result<u64, ConfigError> {
    if count > MAX_EXACT {
        return Err(too_large(field, count));
    }
    Ok(count)
}

/// What is added to a time before it is divided into windows; the offset is as it was given.
const fn pad(length: u64, offset: u64) -> u64 {
    match offset % length {
        0 => 0,
        into => length - into,
    }
}

pub(super) fn header(tag: char, figures: &[u64]) -> String {
    let figures: Vec<_> = figures.iter().map(u64::to_string).collect();
    format!("~{tag}{}\n", figures.join(" "))
}

impl Script for FixedWindow {
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset, _) = self.window_params();
        micros("period", length)?;
        micros("offset", offset % length)?;
        count("limit", self.quota().limit())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset, anchored) = self.window_params();
        let (length, pad) = (length / 1_000, pad(length, offset) / 1_000);
        let shape = [length, pad, u64::from(anchored)];
        let limit = self.quota().limit();
        parts.push(Part {
            name: "fixed_window",
            quick: &[include_str!("lua/quick/fixed_window.lua")],
            sources: &[PRELUDE_LUA, include_str!("lua/fixed_window.lua")],
            header: header('f', &shape),
            figures: vec![limit, shape[0], shape[1], shape[2]],
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (window, used) = (words.next()?, words.next()?);
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
        micros("period", self.quota().period_ns())?;
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
            name: "sliding_log",
            quick: &[],
            sources: &[PRELUDE_LUA, include_str!("lua/sliding_log.lua")],
            header: header('s', &[period]),
            figures: vec![self.quota().limit(), period],
            words: 3,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    /// Not the whole log: two entries that decide alike.
    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (used, last, free) = (words.next()?, words.next()?, words.next()?);
        let at = |us: u64| Tick::from_nanos(us.saturating_mul(1_000));
        // What has to leave before the cost fits leaves with the entry at `free`.
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
        micros("period", length)?;
        micros("offset", offset % length)?;
        count("limit", self.quota().limit())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset) = self.window_params();
        let shape = [length / 1_000, pad(length, offset) / 1_000];
        let limit = self.quota().limit();
        parts.push(Part {
            name: "sliding_window",
            quick: &[include_str!("lua/quick/sliding_window.lua")],
            sources: &[
                PRELUDE_LUA,
                BIGNUM_LUA,
                include_str!("lua/sliding_window.lua"),
            ],
            header: header('w', &shape),
            figures: vec![limit, shape[0], shape[1]],
            words: 3,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        Some(Self::state(words.next()?, words.next()?, words.next()?))
    }
}

impl Script for SlidingGrid {
    /// Cells of the next longer whole microsecond, as in process of the next longer nanosecond.
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset, _) = self.window_params();
        // Of a period that the cells do not divide the offset has no meaning below a cell.
        let begun = offset % 1_000;
        let (length, offset) = (
            length.next_multiple_of(1_000),
            offset
                .checked_next_multiple_of(1_000)
                .unwrap_or(offset - begun),
        );
        micros("period", length)?;
        count("limit", self.quota().limit())?;
        Ok(self.with_grid(length, offset))
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset, counted) = self.window_params();
        let shape = [length / 1_000, pad(length, offset) / 1_000, counted];
        let limit = self.quota().limit();
        parts.push(Part {
            name: "sliding_grid",
            quick: &[],
            sources: &[PRELUDE_LUA, include_str!("lua/sliding_grid.lua")],
            header: header('g', &shape),
            figures: vec![limit, shape[0], shape[1], shape[2]],
            words: usize::try_from(counted + 1).unwrap_or(usize::MAX),
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let (_, _, counted) = self.window_params();
        let cell = words.next()?;
        let counts: Option<Vec<_>> = (0..counted).map(|_| words.next()).collect();
        Some(self.state_of(cell, counts?.into_iter()))
    }
}

impl<A: Script, B: Script> Script for (A, B) {
    fn prepared(self) -> Result<Self, ConfigError> {
        Ok((self.0.prepared()?, self.1.prepared()?))
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        self.0.parts(parts);
        self.1.parts(parts);
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        self.0.arguments(call, args);
        self.1.arguments(call, args);
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        Some((self.0.recall(words)?, self.1.recall(words)?))
    }
}

impl<A: Script> Script for All<A> {
    fn prepared(self) -> Result<Self, ConfigError> {
        if self.parts().is_empty() {
            return Err(ConfigError::Unsupported {
                what: "a set of no limits in Redis",
                instead: "give All at least one part",
            });
        }
        let parts: Result<Vec<_>, _> = self.parts().iter().cloned().map(A::prepared).collect();
        Ok(Self::new(parts?))
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        for part in Self::parts(self) {
            part.parts(parts);
        }
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        for part in Self::parts(self) {
            part.arguments(call, args);
        }
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let parts = Self::parts(self).iter();
        parts.map(|part| part.recall(words)).collect()
    }
}
