//! One thread that wakes sleepers, in any runtime or in none.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::monotonic::MonotonicClock;
use super::sleepers::{SleeperId, Sleepers};
use super::{Clock, Tick};

/// Starts with the first sleeper and ends after `IDLE` without one.
static TIMER: TimerThread = TimerThread {
    state: Mutex::new(State {
        sleepers: Sleepers::new(),
        is_running: false,
        wakes_at: Tick::MAX,
    }),
    changed: Condvar::new(),
};

const IDLE: Duration = Duration::from_secs(10);
/// The longest timeout of one wait, because not every system supports longer ones.
const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

struct TimerThread {
    state: Mutex<State>,
    /// Notified when a deadline is earlier than the next wakeup of the thread.
    changed: Condvar,
}

struct State {
    sleepers: Sleepers,
    is_running: bool,
    /// When the thread wakes up at the latest.
    wakes_at: Tick,
}

impl TimerThread {
    /// Returns the sleeper, and whether a thread will wake it.
    fn set(
        &'static self,
        id: Option<SleeperId>,
        deadline: Tick,
        waker: &Waker,
    ) -> (SleeperId, bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let id = state.sleepers.set(id, deadline, waker);
        if state.is_running {
            // Most sleepers are removed long before their deadlines. If each new earliest sleeper
            // woke the thread, it would never sleep.
            if deadline < state.wakes_at {
                self.changed.notify_one();
            }
            return (id, true);
        }
        let thread = thread::Builder::new().name("tower-throttle-timer".to_owned());
        state.is_running = thread.spawn(|| self.run()).is_ok();
        (id, state.is_running)
    }

    fn remove(&self, id: SleeperId) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.sleepers.remove(id)
        };
        // Dropped after the lock is released: dropping a waker may run a user's code.
        drop(waker);
    }

    fn run(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = MonotonicClock.now();
            let due = state.sleepers.take_due(now);
            if !due.is_empty() {
                drop(state);
                for waker in due {
                    // A panic in one waker must not keep the others asleep.
                    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                }
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let next = state.sleepers.next_deadline();
            state.wakes_at = next.unwrap_or(Tick::MAX);
            let timeout = next.map_or(IDLE, |next| next.since(now).min(MAX_TIMEOUT));
            let (locked, result) = self
                .changed
                .wait_timeout(state, timeout)
                .unwrap_or_else(PoisonError::into_inner);
            state = locked;
            if next.is_none() && result.timed_out() && state.sleepers.next_deadline().is_none() {
                state.is_running = false;
                return;
            }
        }
    }
}

/// Ready when the monotonic clock has reached a deadline.
#[derive(Debug)]
pub(super) struct ThreadSleep {
    deadline: Tick,
    id: Option<SleeperId>,
}

impl ThreadSleep {
    pub(super) const fn until(deadline: Tick) -> Self {
        Self { deadline, id: None }
    }

    /// Wakes at `deadline`. Calls no waker. Returns `false` if the system starts no thread.
    pub(super) fn reset(&mut self, deadline: Tick, waker: &Waker) -> bool {
        let (id, wakes) = TIMER.set(self.id, deadline, waker);
        (self.deadline, self.id) = (deadline, Some(id));
        wakes
    }
}

impl Future for ThreadSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if MonotonicClock.now() >= self.deadline {
            return Poll::Ready(());
        }
        let deadline = self.deadline;
        if !self.reset(deadline, cx.waker()) {
            // Without a thread the future wakes itself until its deadline.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for ThreadSleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            TIMER.remove(id);
        }
    }
}
