//! A line with its timers, and the position of a request in it.

use std::sync::Arc;

use super::line::{Line, LineStatus};
use super::timer::{Driver, LineTimer, TimerStatus};
use super::waiters::Rank;
use crate::clock::Tick;

/// The position of one request in a line.
#[derive(Debug)]
pub(crate) struct QueuePosition {
    line_status: Arc<LineStatus>,
    /// The rank, and whether the limiter decides at once in the lowest bit.
    rank: u64,
}

impl QueuePosition {
    /// `is_immediate` is for [`is_immediate`](Self::is_immediate).
    pub(super) fn new(line: &Line, rank: Rank, is_immediate: bool) -> Self {
        Self {
            line_status: Arc::clone(line.status()),
            rank: rank << 1 | u64::from(is_immediate),
        }
    }

    pub(super) const fn rank(&self) -> Rank {
        self.rank >> 1
    }

    /// Whether the limiter of the request decides at once. The line only stores this for the owner of
    /// the position: a type around this one would be larger.
    #[inline]
    pub(crate) const fn is_immediate(&self) -> bool {
        self.rank & 1 != 0
    }

    pub(super) fn line_id(&self) -> u64 {
        self.line_status.line_id
    }

    /// Whether it is known without a lock that the request has been released.
    #[inline]
    pub(super) fn is_released(&self) -> bool {
        self.line_status.has_released(self.rank())
    }
}

/// A line and its timers.
#[derive(Debug)]
pub(super) struct LineEntry {
    pub(super) line: Line,
    timers: Vec<TimerEntry>,
}

#[derive(Debug)]
struct TimerEntry {
    driver: Driver,
    /// `MAX` if it is not armed.
    fires_at: Tick,
    /// `None` while a thread has taken it out to arm it.
    timer: Option<LineTimer>,
}

impl LineEntry {
    pub(super) fn new(line_id: u64) -> Self {
        Self {
            line: Line::new(line_id),
            timers: Vec::new(),
        }
    }

    /// Whether `position` is in this line, and not in a removed one of the same key.
    pub(super) fn owns(&self, position: &QueuePosition) -> bool {
        Arc::ptr_eq(self.line.status(), &position.line_status)
    }

    /// Whether a timer of the line fires for a caller that is driven by `driver`.
    pub(super) fn has_timer_for(&self, driver: Option<Driver>) -> bool {
        self.timers.iter().any(|one| one.driver.serves(driver))
    }

    pub(super) fn add_timer(&mut self, timer: LineTimer) {
        self.timers.push(TimerEntry {
            driver: timer.driver(),
            fires_at: Tick::MAX,
            timer: Some(timer),
        });
    }

    /// Takes out a timer that would fire too late. Returns when it has to fire.
    pub(super) fn take_late_timer(&mut self) -> Option<(LineTimer, Tick)> {
        let next = self.line.next_slot()?;
        let late = self
            .timers
            .iter_mut()
            .find(|one| one.fires_at > next && one.timer.is_some())?;
        late.fires_at = next;
        Some((late.timer.take()?, next))
    }

    /// Puts back a timer that was taken out and armed for `at`.
    pub(super) fn return_timer(&mut self, timer: LineTimer, at: Tick, status: TimerStatus) {
        let driver = timer.driver();
        let known = self.timers.iter().position(|one| one.driver == driver);
        let fires_at = match status {
            // While it was out, its handler could not note that it has fired.
            TimerStatus::Armed if timer.has_fired() => Tick::MAX,
            TimerStatus::Armed => at,
            TimerStatus::Elapsed => Tick::MAX,
            TimerStatus::RuntimeGone => {
                if let Some(known) = known {
                    self.timers.swap_remove(known);
                }
                return;
            }
        };
        let entry = TimerEntry {
            driver,
            fires_at,
            timer: Some(timer),
        };
        match known.and_then(|known| self.timers.get_mut(known)) {
            // The line was removed in between, and the key's new line has its own timer.
            Some(known) if known.timer.is_some() => {}
            Some(known) => *known = entry,
            None => self.timers.push(entry),
        }
    }

    /// Notes which timers have fired.
    pub(super) fn mark_fired(&mut self) {
        for entry in &mut self.timers {
            if entry.timer.as_ref().is_some_and(LineTimer::has_fired) {
                entry.fires_at = Tick::MAX;
            }
        }
    }
}
