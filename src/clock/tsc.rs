//! The processor's time stamp counter, between two readings of `Instant`.
//!
//! Reading the counter takes a third of the time of `Instant::now` (10.5 ns of 28): with `Instant` a
//! decision on a table of few keys takes up to 1.8 times as long as one of governor. The crate `quanta`
//! is as fast, but measures the rate once, for up to 200 ms at its first use, and corrects no drift.
//! The counter is used only if the kernel's own clock source is the counter: then the kernel has
//! verified that its rate is constant and the same on all processors.
//!
//! # Protocol
//! A reading of `Instant` starts a *line*, which converts the counter to nanoseconds for
//! [`VALID_NS`]. When a line has ended, the next call reads `Instant` again and starts another
//! line. If calls are rare, no line is started and every call reads `Instant`. So nothing is
//! extrapolated over an idle time, and the error is bounded even if the counter is wrong:
//!
//! 1. A line starts [`LEAD_NS`] ahead of `Instant`. That is more than the error of its rate, so a
//!    line is never behind `Instant`.
//! 2. A line never starts below the end of the line before. If that is further ahead of `Instant`,
//!    the new line runs slower, so that it has lost the difference at its end.
//! 3. A call without a line returns `Instant`, or the end of the last line if that is later.
//!
//! So the time never runs backwards. It is at most 60 µs ahead of `Instant`: a line's length and
//! lead, if the counter jumps over a whole line. It is behind only if the counter loses time within
//! a line. A call that finds the counter lower than at the last one ends the line.
//!
//! Each thread has a line of its own, so nothing is shared and nothing is locked. The lines of two threads
//! differ by the lead and by the time of a reading, if the counter does not jump: by at most 6 µs.
//!
//! # The rate
//! It is measured between readings at least 10 ms apart and used once two measurements in a row
//! agree. A thread that has measured nothing yet uses what another one has, and compares. When they stop agreeing (a virtual machine was moved, the counter was reset), `Instant`
//! is read for a second, and the kernel is asked again whether it trusts the counter.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use super::system::system_nanos;

/// The time of this process.
#[inline]
pub(super) fn now() -> u64 {
    thread_local! {
        static TSC: Tsc = const { Tsc::new() };
    }
    TSC.with(|tsc| tsc.now(&SystemSource))
}

/// What the time is read from.
trait TimeSource {
    /// `Instant::now`, in nanoseconds.
    fn instant(&self) -> u64;
    /// The counter.
    fn counter(&self) -> u64;
    /// Whether the kernel's clock source is the counter.
    fn is_counter_reliable(&self) -> bool;
    /// The rate on which the measurements of another thread agreed.
    fn known_rate(&self) -> Option<u64>;
    /// Tells other threads the rate, or that it no longer holds.
    fn tell_rate(&self, rate: Option<u64>);
}

/// What threads tell each other, or zero.
static KNOWN_RATE: AtomicU64 = AtomicU64::new(0);

/// Readings of this machine.
struct SystemSource;

impl TimeSource for SystemSource {
    #[inline]
    fn instant(&self) -> u64 {
        system_nanos()
    }

    #[cfg(not(miri))]
    #[inline]
    #[expect(
        unsafe_code,
        reason = "the counter has no safe reader, and std's reader is slower"
    )]
    fn counter(&self) -> u64 {
        // SAFETY: `rdtsc` touches no memory, and every x86-64 processor has it. A system
        // that forbids `rdtsc` to user programs (`PR_SET_TSC`) ends the process with a signal; the
        // kernel's own fast clock does not work on such a system either.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// Miri has no counter.
    #[cfg(miri)]
    fn counter(&self) -> u64 {
        system_nanos()
    }

    fn is_counter_reliable(&self) -> bool {
        // `fs::read` would allocate a page, in a request.
        let mut source = [0; 16];
        File::open("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .and_then(|mut file| file.read(&mut source))
            .is_ok_and(|len| source[..len].trim_ascii() == b"tsc")
    }

    fn known_rate(&self) -> Option<u64> {
        Some(KNOWN_RATE.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    fn tell_rate(&self, rate: Option<u64>) {
        KNOWN_RATE.store(rate.unwrap_or(0), Ordering::Relaxed);
    }
}

/// How long a line is valid: the most that a jump of the counter can add to the time.
const VALID_NS: u64 = 50_000;
/// How far ahead of `Instant` a line starts.
const LEAD_NS: u64 = 1_000;
/// Calls are rare if none came for this long.
const RARE_NS: u64 = 2 * VALID_NS;
/// The most time between the two readings of `Instant` around one of the counter.
const MAX_READ_GAP_NS: u64 = 5_000;
/// The shortest measurement of the rate.
const BASELINE_NS: u64 = 10_000_000;
/// How long the counter is left alone after two measurements disagreed.
const PAUSE_NS: u64 = 1_000_000_000;

/// Nanoseconds of the counter, close to `Instant`, for one thread.
struct Tsc {
    line: Cell<StraightLine>,
    /// The counter at the last reading.
    last_count: Cell<u64>,
    calibration: RefCell<Calibration>,
}

/// Converts counts to nanoseconds: `base_ns + (count - base_count) * rate / 2^32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StraightLine {
    base_count: u64,
    base_ns: u64,
    rate: u64,
    /// The line ends after this many counts. Zero if it only holds a lower bound.
    valid_counts: u64,
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct Reading {
    count: u64,
    ns: u64,
}

/// The measurement of the rate.
#[derive(Clone, Copy, Debug)]
struct Calibration {
    /// The last reading of `Instant`.
    last_ns: u64,
    /// Where the present measurement began.
    start: Option<Reading>,
    /// The last measurement.
    measured: Option<u64>,
    /// The rate on which two measurements agreed.
    rate: Option<u64>,
    /// The counter is not used before.
    resume_ns: u64,
    /// What the kernel said, if it was asked.
    is_reliable: Option<bool>,
}

impl Tsc {
    const fn new() -> Self {
        Self {
            line: Cell::new(StraightLine::stopped(0)),
            last_count: Cell::new(0),
            calibration: RefCell::new(Calibration::new()),
        }
    }

    /// The nanoseconds of `Instant`, or a little more. Never runs backwards.
    #[inline]
    fn now(&self, source: &impl TimeSource) -> u64 {
        let line = self.line.get();
        let count = source.counter();
        let last = self.last_count.replace(count);
        let passed = count.wrapping_sub(line.base_count);
        if passed < line.valid_counts && last <= count {
            return line.base_ns + scaled(passed, line.rate);
        }
        self.read_instant(source)
    }

    /// Starts the next line.
    #[cold]
    fn read_instant(&self, source: &impl TimeSource) -> u64 {
        let mut calibration = self.calibration.borrow_mut();
        let floor = self.line.get().end();
        let next = calibration.next_line(source.instant(), floor, source);
        self.line.set(next);
        next.base_ns
    }
}

impl StraightLine {
    /// No line: only a lower bound for later readings.
    const fn stopped(ns: u64) -> Self {
        Self {
            base_count: 0,
            base_ns: ns,
            rate: 0,
            valid_counts: 0,
        }
    }

    /// The last moment of the line.
    const fn end(self) -> u64 {
        self.base_ns + scaled(self.valid_counts, self.rate)
    }
}

impl Calibration {
    const fn new() -> Self {
        Self {
            last_ns: 0,
            start: None,
            measured: None,
            rate: None,
            resume_ns: 0,
            is_reliable: None,
        }
    }

    /// The line after one that ended at `floor`, when `Instant` says `now`.
    fn next_line(&mut self, now: u64, floor: u64, source: &impl TimeSource) -> StraightLine {
        let stopped = StraightLine::stopped(now.max(floor));
        let is_rare = now.saturating_sub(self.last_ns) > RARE_NS;
        self.last_ns = now;
        if is_rare || now < self.resume_ns || self.is_reliable == Some(false) {
            return stopped;
        }
        if self.is_reliable.is_none() {
            self.is_reliable = Some(source.is_counter_reliable());
            return stopped;
        }
        let count = source.counter();
        let ns = source.instant();
        // The thread may have been preempted in between.
        if ns.saturating_sub(now) > MAX_READ_GAP_NS {
            return stopped;
        }
        let Some(rate) = self.measure(Reading { count, ns }, source) else {
            return stopped;
        };
        let start = ns + LEAD_NS;
        let excess = floor.saturating_sub(start);
        StraightLine {
            base_count: count,
            base_ns: start + excess,
            // At its end the line is where it would be without the excess.
            rate: rate - rate / VALID_NS * excess.min(VALID_NS),
            valid_counts: (VALID_NS << 32) / rate,
        }
    }

    /// The rate, if it is known.
    fn measure(&mut self, reading: Reading, source: &impl TimeSource) -> Option<u64> {
        let Some(start) = self.start else {
            self.start = Some(reading);
            self.measured = source.known_rate();
            self.rate = self.measured;
            return self.rate;
        };
        if reading.ns.saturating_sub(start.ns) < BASELINE_NS {
            return self.rate;
        }
        let measured = start.rate_until(reading);
        self.rate = match (self.measured, measured) {
            (Some(before), Some(rate)) if rate.abs_diff(before) <= before / 200 => Some(rate),
            _ => None,
        };
        self.start = Some(reading);
        if self.rate.is_some() {
            source.tell_rate(self.rate);
        }
        if self.measured.is_some() && self.rate.is_none() {
            source.tell_rate(None);
            *self = Self {
                last_ns: self.last_ns,
                resume_ns: reading.ns + PAUSE_NS,
                ..Self::new()
            };
        } else {
            self.measured = measured;
        }
        self.rate
    }
}

impl Reading {
    /// Nanoseconds per count, times 2^32. `None` if the counter did not run at 0.1 to 10 GHz.
    fn rate_until(self, later: Self) -> Option<u64> {
        let counts = later.count.checked_sub(self.count)?;
        let passed = u128::from(later.ns.checked_sub(self.ns)?);
        let rate = u64::try_from((passed << 32).checked_div(counts.into())?).ok()?;
        (1 << 28..=10 << 32).contains(&rate).then_some(rate)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "584 years of nanoseconds fit"
)]
#[inline]
const fn scaled(counts: u64, rate: u64) -> u64 {
    ((counts as u128 * rate as u128) >> 32) as u64
}

#[cfg(test)]
mod tests;
