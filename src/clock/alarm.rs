//! A timer for a queue, whose requests may wait on several runtimes or on none.
//!
//! The timer thread serves all of them. Where tokio can pause time, as in tests, a runtime with
//! one thread serves the requests on that thread, in its own time. The runtime may not be driven any
//! more, so each such thread has a timer of its own.

use std::task::Waker;
use std::time::Duration;

use super::paused::RuntimeTimer;
use super::sleepers::SleepUntil;
use super::{Clock, MonotonicClock, Tick};

/// Calls a waker at one moment after the other.
#[derive(Debug)]
pub(crate) struct Alarm {
    waker: Waker,
    /// When it fires; `MAX` if it is not set.
    at: Tick,
    /// It does not fire earlier.
    rests_until: Tick,
    runtimes: Vec<RuntimeTimer>,
    thread: Option<SleepUntil<MonotonicClock>>,
}

/// The shortest time between two times that it fires. Turns that come closer to each other come together:
/// switching between threads takes longer than what is done in between.
const REST: Duration = Duration::from_millis(1);

impl Alarm {
    pub(crate) const fn new(waker: Waker) -> Self {
        Self {
            waker,
            at: Tick::MAX,
            rests_until: Tick::ZERO,
            runtimes: Vec::new(),
            thread: None,
        }
    }

    /// Makes it fire for the caller as well, once it is set again.
    pub(crate) fn serve_caller(&mut self) {
        if self.runtimes.iter().any(RuntimeTimer::serves_caller) {
            return;
        }
        match RuntimeTimer::of_caller() {
            Some(runtime) => self.runtimes.push(runtime),
            None if self.thread.is_some() => return,
            None => self.thread = Some(SleepUntil::new(MonotonicClock, Tick::MAX)),
        }
        self.at = Tick::MAX;
    }

    /// Whether it has to be set to fire at `at`.
    pub(crate) fn is_late_for(&self, at: Tick) -> bool {
        at.max(self.rests_until) < self.at
    }

    /// Notes that it has fired at `now`.
    pub(crate) fn clear(&mut self, now: Tick) {
        self.at = Tick::MAX;
        self.rests_until = now.plus(REST);
    }

    /// Sets it to `at`, or a little later. Calls no waker, so the caller may hold a lock that the waker
    /// takes. Returns false if the moment has passed already; then it does not fire.
    pub(crate) fn set(&mut self, at: Tick) -> bool {
        self.at = Tick::MAX;
        if at <= MonotonicClock.now() {
            return false;
        }
        let at = at.max(self.rests_until);
        let runtimes = self.runtimes.len();
        self.runtimes.retain_mut(|one| one.set(at, &self.waker));
        if self.runtimes.len() < runtimes {
            // The thread serves the requests that waited on a runtime that has been shut down.
            let thread = || SleepUntil::new(MonotonicClock, at);
            self.thread.get_or_insert_with(thread);
        }
        if let Some(thread) = &mut self.thread {
            thread.reset(at, &self.waker);
        }
        self.at = at;
        true
    }
}
