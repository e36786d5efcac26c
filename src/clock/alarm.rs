//! A timer for a queue, whose requests may wait on several runtimes or on none.
//!
//! The timer thread serves all of them. Where tokio can pause time, as in tests, a runtime with
//! one thread serves the requests on that thread, in its own time. The runtime may not be driven any
//! more, so each such thread has a timer of its own.

use std::task::Waker;

use super::paused::RuntimeTimer;
use super::timer_thread::ThreadSleep;
use super::{Clock, MonotonicClock, Tick};

/// Calls a waker at one moment after the other.
#[derive(Debug)]
pub(crate) struct Alarm {
    waker: Waker,
    /// `MAX` if it is not set.
    at: Tick,
    runtimes: Vec<RuntimeTimer>,
    thread: Option<ThreadSleep>,
}

/// The result of [`Alarm::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlarmState {
    /// It will fire.
    Set,
    /// The moment has passed already. It will not fire.
    Due,
    /// It will not fire: the system starts no thread.
    Failed,
}

impl Alarm {
    pub(crate) const fn new(waker: Waker) -> Self {
        Self {
            waker,
            at: Tick::MAX,
            runtimes: Vec::new(),
            thread: None,
        }
    }

    /// Makes it fire for the caller as well. Returns whether it is set.
    pub(crate) fn serve_caller(&mut self) -> bool {
        if self.runtimes.iter().any(RuntimeTimer::serves_caller) {
            return self.at < Tick::MAX;
        }
        match RuntimeTimer::of_caller() {
            Some(runtime) => self.runtimes.push(runtime),
            None if self.thread.is_some() => return self.at < Tick::MAX,
            None => self.thread = Some(ThreadSleep::until(Tick::MAX)),
        }
        self.at = Tick::MAX;
        false
    }

    /// When it fires; `MAX` if it is not set.
    pub(crate) const fn at(&self) -> Tick {
        self.at
    }

    /// Notes that it has fired.
    pub(crate) const fn clear(&mut self) {
        self.at = Tick::MAX;
    }

    /// Sets it to `at`. Calls no waker, so the caller may hold a lock that the waker takes.
    pub(crate) fn set(&mut self, at: Tick) -> AlarmState {
        self.at = Tick::MAX;
        if at <= MonotonicClock.now() {
            return AlarmState::Due;
        }
        let runtimes = self.runtimes.len();
        self.runtimes.retain_mut(|one| one.set(at, &self.waker));
        if self.runtimes.len() < runtimes {
            // The thread serves the requests that waited on a runtime that has been shut down.
            self.thread.get_or_insert_with(|| ThreadSleep::until(at));
        }
        if let Some(thread) = &mut self.thread {
            if !thread.reset(at, &self.waker) {
                return AlarmState::Failed;
            }
        }
        self.at = at;
        AlarmState::Set
    }
}
