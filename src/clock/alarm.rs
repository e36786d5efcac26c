//! A timer for a queue, whose requests may wait on several runtimes or on none.
//!
//! The timers of the runtime serve it in which a request was polled last: so its tasks are woken by their own thread.
//! That runtime may not be driven any more, or be busy, so a thread of this crate fires a little later if it does not.
//! If it is late, that thread serves all until another request is polled.

use std::{task::Waker, time::Duration};

use super::runtime::{IS_PAUSABLE, RuntimeTimer};
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
    /// `None` if the thread serves it.
    runtime: Option<RuntimeTimer>,
    thread: SleepUntil<MonotonicClock>,
}

/// The shortest time between two times that it fires. Turns that come closer to each other come together:
/// switching between threads takes longer than what is done in between.
const REST: Duration = Duration::from_millis(1);

/// How much later the thread fires.
const LATE: Duration = Duration::from_millis(20);

impl Alarm {
    pub(crate) const fn new(waker: Waker) -> Self {
        Self {
            waker,
            at: Tick::MAX,
            rests_until: Tick::ZERO,
            runtime: None,
            thread: SleepUntil::new(MonotonicClock, Tick::MAX),
        }
    }

    /// Makes it fire in the runtime of the caller, if it is in one, once it is set again.
    pub(crate) fn serve_caller(&mut self) {
        let is_served = self.runtime.as_ref().map(RuntimeTimer::serves_caller);
        if is_served == Some(true) {
            return;
        }
        self.runtime = RuntimeTimer::of_caller();
        // If no runtime has served it, the thread goes on with what it is set to.
        if is_served.is_some() || self.runtime.is_some() {
            self.at = Tick::MAX;
        }
    }

    /// Whether it has to be set to fire at `at`.
    pub(crate) fn is_late_for(&self, at: Tick) -> bool {
        at.max(self.rests_until) < self.at
    }

    /// Notes that it has fired at `now`. If the thread was first, the runtime is not driven, or is busy.
    pub(crate) fn clear(&mut self, now: Tick) {
        let runtime = self.runtime.take();
        self.runtime = runtime.filter(RuntimeTimer::serves_caller);
        self.at = Tick::MAX;
        self.rests_until = now.plus(REST);
    }

    /// Sets it to `at`, or a little later. Calls no waker, so the caller may hold a lock that the waker
    /// takes. Returns false if the moment has passed already; then it does not fire.
    pub(crate) fn set(&mut self, at: Tick) -> bool {
        self.at = Tick::MAX;
        let now = MonotonicClock.now();
        if at <= now {
            return false;
        }
        let at = at.max(self.rests_until);
        let set = |runtime: &mut RuntimeTimer| runtime.set(at, now, &self.waker);
        let is_set = self.runtime.as_mut().is_some_and(set);
        self.runtime = self.runtime.take().filter(|_| is_set);
        let late = match is_set {
            false => Duration::ZERO,
            // The thread knows no paused time.
            true if IS_PAUSABLE => Duration::MAX,
            true => LATE,
        };
        self.thread.reset(at.plus(late), &self.waker);
        self.at = at;
        true
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_outside_of_a_runtime_leaves_the_thread_as_it_is_set() {
        let mut alarm = Alarm::new(Waker::noop().clone());
        let at = MonotonicClock.now().plus(Duration::from_secs(60));
        alarm.serve_caller();
        assert!(alarm.set(at));
        alarm.serve_caller();
        assert!(!alarm.is_late_for(at));
    }

    #[cfg(feature = "tokio")]
    #[tokio::test]
    async fn a_request_in_a_runtime_is_served_by_its_timers_once_it_is_set_again() {
        let mut alarm = Alarm::new(Waker::noop().clone());
        let at = MonotonicClock.now().plus(Duration::from_secs(60));
        assert!(alarm.set(at));
        alarm.serve_caller();
        assert!(alarm.is_late_for(at) && alarm.set(at));
        assert!(alarm.runtime.is_some());
        alarm.serve_caller();
        assert!(!alarm.is_late_for(at));
    }
}
