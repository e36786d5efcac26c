//! Futures that wait for a moment of a clock, and their wakers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Clock, Tick};

/// A clock that wakes sleepers.
pub(super) trait Wakes: Clock + Unpin {
    fn sleepers(&self) -> &Sleepers;

    /// Is called when a sleeper is to be woken earlier than any other. Returns `false` if none will be.
    fn wake_earlier(&self) -> bool {
        true
    }
}

/// Wakers by deadline. Each sleeping future has one entry, which it removes when it is dropped.
#[derive(Debug)]
pub(super) struct Sleepers(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    by_deadline: BTreeMap<SleeperId, Waker>,
    next: u64,
    /// When the clock looks for due ones.
    wakes_at: Tick,
}

/// The deadline, and a number that distinguishes sleepers with the same deadline.
type SleeperId = (Tick, u64);

impl Sleepers {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Waiting {
            by_deadline: BTreeMap::new(),
            next: 0,
            wakes_at: Tick::MAX,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sleeper, or replaces the deadline and the waker of the sleeper with this `id`. Returns whether it is
    /// to be woken earlier than the clock looks.
    ///
    /// Most sleepers are removed long before their deadlines. If each new earliest sleeper woke the timer
    /// thread, it would never sleep.
    fn set(&self, id: &mut Option<SleeperId>, deadline: Tick, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut waiting = self.lock();
        waiting.next += 1;
        let own = (deadline, waiting.next);
        let stale = (id.replace(own)).and_then(|before| waiting.by_deadline.remove(&before));
        waiting.by_deadline.insert(own, waker);
        let is_earlier = deadline < waiting.wakes_at;
        drop(waiting);
        // Without the lock: dropping a waker may run a user's code.
        drop(stale);
        is_earlier
    }

    fn remove(&self, id: SleeperId) {
        let waker = self.lock().by_deadline.remove(&id);
        drop(waker);
    }

    /// Removes the sleepers whose deadline has come, and returns when the next one has to be woken. The
    /// caller wakes them: a waker may poll, and a poll may sleep again.
    pub(super) fn take_due(&self, now: Tick) -> (Vec<Waker>, Tick) {
        let (mut due, mut waiting) = (Vec::new(), self.lock());
        waiting.wakes_at = Tick::MAX;
        while let Some(first) = waiting.by_deadline.first_entry() {
            let deadline = first.key().0;
            if deadline > now {
                waiting.wakes_at = deadline;
                break;
            }
            due.push(first.remove());
        }
        (due, waiting.wakes_at)
    }
}

/// Ready when a clock has reached a deadline.
#[derive(Debug)]
pub(super) struct SleepUntil<C: Wakes> {
    clock: C,
    deadline: Tick,
    id: Option<SleeperId>,
}

impl<C: Wakes> SleepUntil<C> {
    pub(super) const fn new(clock: C, deadline: Tick) -> Self {
        Self {
            clock,
            deadline,
            id: None,
        }
    }

    /// Wakes at `deadline`. Calls no waker. Returns `false` if nothing will wake it.
    pub(super) fn reset(&mut self, deadline: Tick, waker: &Waker) -> bool {
        self.deadline = deadline;
        let is_earlier = self.clock.sleepers().set(&mut self.id, deadline, waker);
        !is_earlier || self.clock.wake_earlier()
    }
}

impl<C: Wakes> Future for SleepUntil<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        if self.clock.now() >= deadline {
            return Poll::Ready(());
        }
        if !self.reset(deadline, cx.waker()) {
            // The future wakes itself until its deadline.
            cx.waker().wake_by_ref();
        }
        // A step between the reading above and `reset` has not found this sleeper.
        if self.clock.now() >= deadline {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<C: Wakes> Drop for SleepUntil<C> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.sleepers().remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sleeper_is_due_once_at_its_deadline_unless_it_was_removed() {
        let (sleepers, waker) = (Sleepers::new(), Waker::noop());
        let mut ids = [5, 5, 5, 7].map(|at| {
            let mut id = None;
            let is_earlier = sleepers.set(&mut id, Tick::from_nanos(at), waker);
            assert!(is_earlier, "none looks yet");
            id
        });
        sleepers.set(&mut ids[0], Tick::from_nanos(8), waker);
        sleepers.remove(ids[1].expect("it is set"));
        let due = |now| {
            let (due, next) = sleepers.take_due(Tick::from_nanos(now));
            (due.len(), next.as_nanos())
        };
        let never = Tick::MAX.as_nanos();
        assert_eq!(due(4), (0, 5));
        assert!(sleepers.set(&mut ids[3], Tick::from_nanos(4), waker));
        assert!(!sleepers.set(&mut ids[3], Tick::from_nanos(7), waker));
        let dues = [5, 6, 7, 8, 9].map(due);
        assert_eq!(dues, [(1, 7), (0, 7), (1, 8), (1, never), (0, never)]);
    }
}
