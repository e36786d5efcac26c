//! What a script has to be told of each algorithm, and how its answer reads.
//!
//! A script never multiplies a rate with a cost: that is done here, in 128 bits, and it is told
//! spans of time as microseconds and parts of one. Nor does it work out what a caller is told: it
//! answers the state that it decided upon, and the decision is what the algorithm itself, in Rust,
//! says about that state.

use super::script::{Args, Part, Words, sealed::Script};
use crate::algorithm::{
    Algorithm, All, Charge, Due, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, WarmUp,
};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Spans, counts and parts stay below this, so that a script can add two of them exactly.
const MOST: u64 = 1 << 52;
/// A log is one value in the server, of at most twice as many entries as the limit.
const LONGEST_LOG: u64 = 1 << 16;

const OPEN: &str = include_str!("lua/open.lua");
const EXACT: &str = include_str!("lua/exact.lua");
const BUCKET: &str = include_str!("lua/bucket.lua");

/// What is asked of the state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub enum Call {
    Take(u64),
    /// Wait at most so many nanoseconds.
    Reserve(u64, u64),
    Peek(u64),
    Refund(u64),
    Absorb(u64),
    Reset,
}

impl Call {
    /// The number of the operation in a script. What takes nothing is a look.
    pub(super) const fn op(self) -> i64 {
        match self {
            Self::Take(0)
            | Self::Reserve(0, _)
            | Self::Refund(0)
            | Self::Absorb(0)
            | Self::Peek(_) => 2,
            Self::Take(_) | Self::Reserve(..) => 1,
            Self::Refund(_) => 3,
            Self::Absorb(_) => 4,
            Self::Reset => 5,
        }
    }

    const fn cost(self) -> u64 {
        match self {
            Self::Take(cost)
            | Self::Reserve(cost, _)
            | Self::Peek(cost)
            | Self::Refund(cost)
            | Self::Absorb(cost) => cost,
            Self::Reset => 0,
        }
    }
}

fn too_large(field: &'static str, value: impl std::fmt::Display) -> ConfigError {
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
    if us > MOST {
        return Err(too_large(field, format!("{us} us")));
    }
    Ok(us)
}

fn count(field: &'static str, count: u64) -> Result<u64, ConfigError> {
    if count > MOST {
        return Err(too_large(field, count));
    }
    Ok(count)
}

/// What is added to a time before it is divided into windows.
const fn pad(length: u64, offset: u64) -> u64 {
    if offset == 0 { 0 } else { length - offset }
}

fn header(tag: char, figures: &[u64]) -> String {
    let figures: Vec<_> = figures.iter().map(u64::to_string).collect();
    format!("~{tag}{}\n", figures.join(" "))
}

fn figures(header: String, figures: &[u64]) -> Vec<String> {
    let mut all = vec![header];
    all.extend(figures.iter().map(u64::to_string));
    all
}

/// Exact time: W/L = num/den nanoseconds a unit, a microsecond has 1000 * den parts.
#[derive(Clone, Copy)]
struct Pace {
    num: u64,
    den: u64,
}

impl Pace {
    fn new(quota: &Quota) -> Self {
        let (mut common, mut rest) = (quota.period_ns(), quota.limit());
        while rest > 0 {
            (common, rest) = (rest, common % rest);
        }
        Self {
            num: quota.period_ns() / common,
            den: quota.limit() / common,
        }
    }

    /// As [`new`](Self::new), if a script can count with it.
    fn checked(quota: &Quota) -> Result<Self, ConfigError> {
        let pace = Self::new(quota);
        if pace.den > MOST / 1_000 {
            return Err(too_large("limit", quota.limit()));
        }
        Ok(pace)
    }

    const fn parts(&self) -> u64 {
        1_000 * self.den
    }

    /// The time that `units` are worth, in parts.
    fn span(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.num)
    }

    /// A time in parts.
    fn time(&self, ns: u64) -> u128 {
        u128::from(ns) * u128::from(self.den)
    }

    /// Parts as microseconds and parts; what is beyond all time is cut.
    fn split(&self, parts: u128) -> (u64, u64) {
        let whole = u128::from(self.parts());
        let fits = |number: u128| u64::try_from(number).ok().filter(|number| *number <= MOST);
        match (fits(parts / whole), fits(parts % whole)) {
            (Some(us), Some(part)) => (us, part),
            _ => (MOST, 0),
        }
    }

    fn due(&self, us: u64, part: u64) -> Due {
        Due::new(
            us.saturating_mul(1_000).saturating_add(part / self.den),
            part % self.den,
        )
    }

    /// den, the price of a unit, the capacity: what a later quota has to know of this one.
    fn header(&self, tag: char, capacity: u64) -> String {
        let (us, part) = (self.num / self.parts(), self.num % self.parts());
        header(tag, &[self.den, us, part, capacity])
    }
}

/// Pushes a span of cost, and the latest moment that admits it if there is one.
fn span_and_bound(pace: Pace, span: u128, bound: Option<u128>, args: &mut Args) {
    let (us, part) = pace.split(span);
    args.push(us);
    args.push(part);
    if let Some(bound) = bound {
        let (us, part) = pace.split(bound);
        args.push(us);
        args.push(part);
    } else {
        args.never();
        args.push(0);
    }
}

impl Script for FixedWindow {
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset, _) = self.shape();
        micros("period", length)?;
        micros("offset", offset)?;
        count("limit", self.quota().limit())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset, anchored) = self.shape();
        let (length, pad) = (length / 1_000, pad(length, offset) / 1_000);
        let shape = [length, pad, u64::from(anchored)];
        let limit = self.quota().limit();
        parts.push(Part {
            name: "fixed_window",
            sources: &[OPEN, include_str!("lua/fixed_window.lua")],
            figures: figures(header('f', &shape), &[limit, shape[0], shape[1], shape[2]]),
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        let (window, used) = (words.next()?, words.next()?);
        let (_, _, anchored) = self.shape();
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
        if limit > LONGEST_LOG {
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
            sources: &[OPEN, include_str!("lua/sliding_log.lua")],
            figures: figures(header('s', &[period]), &[self.quota().limit(), period]),
            words: 3,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    /// Not the whole log: two entries that decide alike.
    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
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
        let (length, offset) = self.shape();
        micros("period", length)?;
        micros("offset", offset)?;
        count("limit", self.quota().limit())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset) = self.shape();
        let shape = [length / 1_000, pad(length, offset) / 1_000];
        let limit = self.quota().limit();
        parts.push(Part {
            name: "sliding_window",
            sources: &[OPEN, EXACT, include_str!("lua/sliding_window.lua")],
            figures: figures(header('w', &shape), &[limit, shape[0], shape[1]]),
            words: 3,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        Some(Self::state(words.next()?, words.next()?, words.next()?))
    }
}

impl Script for SlidingGrid {
    /// Cells of the next longer whole microsecond, as in process of the next longer nanosecond.
    fn prepared(self) -> Result<Self, ConfigError> {
        let (length, offset, _) = self.shape();
        // Of a period that the cells do not divide the offset has no meaning below a cell.
        let (length, offset) = (
            length.next_multiple_of(1_000),
            offset.next_multiple_of(1_000),
        );
        micros("period", length)?;
        count("limit", self.quota().limit())?;
        Ok(self.with_cells_of(length, offset))
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (length, offset, counted) = self.shape();
        let shape = [length / 1_000, pad(length, offset) / 1_000, counted];
        let limit = self.quota().limit();
        parts.push(Part {
            name: "sliding_grid",
            sources: &[OPEN, include_str!("lua/sliding_grid.lua")],
            figures: figures(header('g', &shape), &[limit, shape[0], shape[1], shape[2]]),
            words: usize::try_from(counted + 1).unwrap_or(usize::MAX),
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        args.push(call.cost());
    }

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        let (_, _, counted) = self.shape();
        let cell = words.next()?;
        let counts: Option<Vec<_>> = (0..counted).map(|_| words.next()).collect();
        Some(Self::state(self, cell, counts?.into_iter()))
    }
}

impl Script for TokenBucket {
    fn prepared(self) -> Result<Self, ConfigError> {
        bucket_fits(&self.quota())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        /// A key that began with less than a full bucket is forgotten so long after it is full, in
        /// microseconds: a month. The next request then begins anew, with fewer tokens.
        const KEPT: u64 = 30 * 86_400 * 1_000_000;

        let quota = self.quota();
        let gone = self.first_tokens().map(|first| quota.capacity() - first);
        let rest = gone.map_or(0, |_| KEPT);
        parts.push(Part {
            name: "token_bucket",
            sources: &[OPEN, EXACT, BUCKET, include_str!("lua/token_bucket.lua")],
            figures: bucket_figures('t', &quota, gone.unwrap_or(0), rest),
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let quota = self.quota();
        let pace = Pace::new(&quota);
        let most = match (call, self.line()) {
            (Call::Reserve(_, most), _) => pace.time(most),
            (_, None) => 0,
            (_, Some((units, most))) => pace.span(units).min(pace.time(most)),
        };
        let fits = call.cost() <= quota.capacity();
        let bound = fits.then(|| pace.span(quota.capacity()) + most);
        span_and_bound(pace, pace.span(call.cost()), bound, args);
    }

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        Some(Pace::new(&self.quota()).due(words.next()?, words.next()?))
    }
}

fn bucket_fits(quota: &Quota) -> Result<(), ConfigError> {
    let pace = Pace::checked(quota)?;
    count("burst", quota.capacity())?;
    if pace.span(quota.capacity()) / u128::from(pace.parts()) >= u128::from(MOST) {
        return Err(too_large("burst", quota.capacity()));
    }
    Ok(())
}

/// `gone`: what a new key has used. `rest`: how long a key is kept that needs no keeping.
fn bucket_figures(tag: char, quota: &Quota, gone: u64, rest: u64) -> Vec<String> {
    let pace = Pace::new(quota);
    let depth = pace.split(pace.span(quota.capacity()));
    let gone = pace.split(pace.span(gone));
    figures(
        pace.header(tag, quota.capacity()),
        &[pace.parts(), depth.0, depth.1, gone.0, gone.1, rest],
    )
}

impl Script for LeakyBucket {
    fn prepared(self) -> Result<Self, ConfigError> {
        bucket_fits(&self.quota())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (queue, _, _) = self.line();
        let mut figures = bucket_figures('l', &self.quota(), 0, 0);
        figures.insert(0, u64::from(queue.is_some()).to_string());
        parts.push(Part {
            name: "leaky_bucket",
            sources: &[OPEN, EXACT, BUCKET, include_str!("lua/leaky_bucket.lua")],
            figures,
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let quota = self.quota();
        let pace = Pace::new(&quota);
        let (queue, max_wait, charge) = self.line();
        let (cost, span) = (call.cost(), pace.span(call.cost()));
        // A place in line is paid for when it is taken, or before.
        let in_line = |most: u128| match charge {
            Charge::After => most + span,
            Charge::Before => most,
        };
        let bound = match (call, queue) {
            (Call::Reserve(_, most), _) => Some(in_line(pace.time(most))),
            (_, None) => (cost <= quota.capacity()).then(|| pace.span(quota.capacity())),
            (_, Some(units)) if cost > quota.capacity().max(units) => None,
            (_, Some(units)) => {
                let places = match charge {
                    Charge::After => Some(units.saturating_sub(cost.saturating_sub(1))),
                    Charge::Before => (cost <= units).then_some(units),
                };
                places.map(|places| in_line(pace.span(places).min(pace.time(max_wait))))
            }
        };
        span_and_bound(pace, span, bound, args);
    }

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        Some(Pace::new(&self.quota()).due(words.next()?, words.next()?))
    }
}

/// The store of a warm-up in numbers that a script can count with: a permit, the refill of a
/// nanosecond, the threshold, the whole, and how many microseconds fill it.
fn warm_up_store(algorithm: &WarmUp) -> Option<[u64; 5]> {
    let (_, ramp, [permit, refill, threshold, full]) = algorithm.figures();
    let cooling = full / (1_000 * refill) + 2;
    let most_stored = full + (cooling + 1) * 1_000 * refill;
    if most_stored > u128::from(2 * MOST) || ramp > MOST {
        return None;
    }
    // A permit worth more than the whole store takes all of it.
    let figures = [
        permit.min(u128::from(MOST)),
        refill,
        threshold,
        full,
        cooling,
    ];
    let mut store = [0; 5];
    for (to, from) in store.iter_mut().zip(figures) {
        *to = u64::try_from(from).ok()?;
    }
    Some(store)
}

impl Script for WarmUp {
    fn prepared(self) -> Result<Self, ConfigError> {
        Pace::checked(&self.quota())?;
        count("limit", self.quota().limit())?;
        match warm_up_store(&self) {
            Some(_) => Ok(self),
            None => Err(too_large("warm_up", format!("{} ns", self.figures().1))),
        }
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let pace = Pace::new(&self.quota());
        let (cold, ramp, _) = self.figures();
        let [_, refill, threshold, full, cooling] = warm_up_store(self).unwrap_or_default();
        parts.push(Part {
            name: "warm_up",
            sources: &[OPEN, EXACT, include_str!("lua/warm_up.lua")],
            figures: figures(
                header('u', &[pace.den, refill, full, cooling]),
                &[pace.den, refill, threshold, full, cold, ramp, cooling],
            ),
            words: 3,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let quota = self.quota();
        let pace = Pace::new(&quota);
        let [permit, ..] = warm_up_store(self).unwrap_or_default();
        let cost = call.cost();
        let (line, max_wait) = self.line();
        let bound = match (call, line) {
            (Call::Reserve(_, most), _) => Some(pace.time(most)),
            _ if cost > quota.limit() => None,
            (_, None) => Some(0),
            (_, Some(units)) => Some(pace.span(units).min(pace.time(max_wait))),
        };
        args.push(cost.saturating_mul(permit).min(2 * MOST));
        span_and_bound(pace, pace.span(cost), bound, args);
    }

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        let stored = u128::from(words.next()?);
        let free = Pace::new(&self.quota()).due(words.next()?, words.next()?);
        Some(Self::state(stored, free))
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

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
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

    fn recall(&self, words: &mut Words<'_>) -> Option<Self::State> {
        let parts = Self::parts(self).iter();
        parts.map(|part| part.recall(words)).collect()
    }
}
