//! The seats of a waiting room.
//!
//! # Protocol
//! `word` is twice the number of free seats, plus [`HAS_WAITERS`] while services wait for a seat.
//! - `HAS_WAITERS` changes only under the lock of `waiters`, and is set only if no seat is free.
//! - While it is set, no other service takes a seat. A released seat goes to the first waiter, under
//!   the lock, and only that waiter is woken.
//! - A waiter that is dropped after it was notified releases its seat.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::list::List;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// In `word`: services wait for a seat.
const HAS_WAITERS: u64 = 1;
const ONE_SEAT: u64 = 2;

pub(crate) struct Seats {
    word: AtomicU64,
    waiters: Mutex<List<SeatWaiter>>,
}

#[derive(Debug)]
struct SeatWaiter {
    waker: Option<Waker>,
    /// Set when a released seat goes to this waiter. It is then no longer in the list.
    notified: bool,
}

/// A taken seat. Dropping it releases the seat.
#[derive(Debug)]
pub(crate) struct SeatPermit {
    seats: Arc<Seats>,
}

/// The seat that a service needs before it is ready. A clone of the service needs one of its own.
#[derive(Debug)]
pub(crate) struct SeatAcquire {
    /// `None` if the number of waiting requests is not limited.
    seats: Option<Arc<Seats>>,
    state: AcquireState,
}

#[derive(Debug)]
enum AcquireState {
    Idle,
    /// The index of the waiter.
    Waiting(u32),
    Acquired(SeatPermit),
}

impl Seats {
    /// Panics if there are none: the service would never be ready.
    #[track_caller]
    pub(crate) fn new(seats: u32) -> Arc<Self> {
        assert!(
            seats > 0,
            "seats: 0 is not allowed; give a number from 1 to {}",
            u32::MAX
        );
        Arc::new(Self {
            word: AtomicU64::new(u64::from(seats) * ONE_SEAT),
            waiters: Mutex::new(List::default()),
        })
    }

    /// Takes a seat if one is free.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<SeatPermit> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word >= ONE_SEAT && word & HAS_WAITERS == 0 {
            match self.compare_exchange(word, word - ONE_SEAT) {
                Ok(()) => return Some(self.new_permit()),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Takes a seat, or adds a waiter and returns its index.
    fn acquire_or_enqueue(self: &Arc<Self>, waker: &Waker) -> Result<SeatPermit, u32> {
        if let Some(seat) = self.try_acquire() {
            return Ok(seat);
        }
        let waiter = SeatWaiter {
            waker: Some(waker.clone()),
            notified: false,
        };
        let mut waiters = lock(&self.waiters);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // A seat may have been released in between, while there was no waiter.
            let next = if word >= ONE_SEAT {
                word - ONE_SEAT
            } else {
                HAS_WAITERS
            };
            match self.compare_exchange(word, next) {
                Ok(()) if word >= ONE_SEAT => {
                    drop(waiters);
                    return Ok(self.new_permit());
                }
                Ok(()) => return Err(waiters.push_back(waiter)),
                Err(now) => word = now,
            }
        }
    }

    /// Returns the seat of the waiter at `at` once it is notified, and then removes the waiter.
    fn poll_waiter(self: &Arc<Self>, at: u32, waker: &Waker) -> Option<SeatPermit> {
        let mut waker = Some(waker.clone());
        let mut waiters = lock(&self.waiters);
        let waiter = waiters.get_mut(at)?;
        // The old waker is dropped after the lock is released.
        std::mem::swap(&mut waiter.waker, &mut waker);
        if !waiter.notified {
            drop(waiters);
            return None;
        }
        let removed = waiters.take(at);
        drop(waiters);
        drop(removed);
        Some(self.new_permit())
    }

    /// Removes the waiter at `at`, which was dropped.
    fn cancel_wait(self: &Arc<Self>, at: u32) {
        let mut waiters = lock(&self.waiters);
        let removed = waiters.take(at);
        if waiters.len() == 0 {
            self.word.fetch_and(!HAS_WAITERS, Ordering::Relaxed);
        }
        drop(waiters);
        if removed.is_some_and(|waiter| waiter.notified) {
            drop(self.new_permit());
        }
    }

    fn release(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            while word & HAS_WAITERS == 0 {
                match self.compare_exchange(word, word + ONE_SEAT) {
                    Ok(()) => return,
                    Err(now) => word = now,
                }
            }
            let mut waiters = lock(&self.waiters);
            if let Some(at) = waiters.front() {
                waiters.unlink(at);
                if waiters.len() == 0 {
                    self.word.fetch_and(!HAS_WAITERS, Ordering::Relaxed);
                }
                let waker = waiters.get_mut(at).and_then(|waiter| {
                    waiter.notified = true;
                    waiter.waker.take()
                });
                drop(waiters);
                waker.into_iter().for_each(Waker::wake);
                return;
            }
            // All waiters were dropped in between.
            word = self.word.load(Ordering::Relaxed);
        }
    }

    fn compare_exchange(&self, from: u64, to: u64) -> Result<(), u64> {
        self.word
            .compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .map(|_| ())
    }

    /// The permit of a seat that was subtracted from `word`, or of a released one that goes to a
    /// waiter.
    fn new_permit(self: &Arc<Self>) -> SeatPermit {
        SeatPermit {
            seats: Arc::clone(self),
        }
    }
}

impl Drop for SeatPermit {
    fn drop(&mut self) {
        self.seats.release();
    }
}

impl SeatAcquire {
    pub(crate) const fn new(seats: Option<Arc<Seats>>) -> Self {
        Self {
            seats,
            state: AcquireState::Idle,
        }
    }

    /// Ready when the service has a seat, or if seats are not limited.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        match &self.seats {
            None => Poll::Ready(()),
            Some(_) => self.poll_seat(cx),
        }
    }

    fn poll_seat(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Some(seats) = &self.seats else {
            return Poll::Ready(());
        };
        let got = match self.state {
            AcquireState::Acquired(_) => return Poll::Ready(()),
            AcquireState::Idle => match seats.acquire_or_enqueue(cx.waker()) {
                Ok(seat) => Some(seat),
                Err(at) => {
                    self.state = AcquireState::Waiting(at);
                    None
                }
            },
            AcquireState::Waiting(at) => seats.poll_waiter(at, cx.waker()),
        };
        match got {
            Some(seat) => {
                self.state = AcquireState::Acquired(seat);
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }

    /// Releases the seat, if one is held.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let AcquireState::Acquired(_) = self.state {
            self.state = AcquireState::Idle;
        }
    }

    /// Moves the seat to a request that is passed to the service.
    #[inline]
    pub(crate) fn take_seat(&mut self) -> RequestSeat {
        match &self.seats {
            None => RequestSeat::NOT_REQUIRED,
            Some(seats) => match std::mem::replace(&mut self.state, AcquireState::Idle) {
                AcquireState::Acquired(seat) => RequestSeat(Some(Seat::Acquired(seat))),
                other => {
                    self.state = other;
                    RequestSeat(Some(Seat::Missing(Arc::clone(seats))))
                }
            },
        }
    }
}

/// The seat of a request, if seats are limited and the request may wait.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct RequestSeat(Option<Seat>);

#[derive(Debug)]
enum Seat {
    Acquired(#[expect(dead_code, reason = "kept for its drop")] SeatPermit),
    /// The request has no seat yet.
    Missing(Arc<Seats>),
}

impl RequestSeat {
    pub(crate) const NOT_REQUIRED: Self = Self(None);

    /// Takes a seat if the request needs one. Returns whether it may wait.
    pub(crate) fn try_acquire(&mut self) -> bool {
        if let Some(Seat::Missing(seats)) = &self.0 {
            match seats.try_acquire() {
                Some(seat) => self.0 = Some(Seat::Acquired(seat)),
                None => return false,
            }
        }
        true
    }
}

/// Manual impl: a clone of a service has no seat yet.
impl Clone for SeatAcquire {
    fn clone(&self) -> Self {
        Self::new(self.seats.clone())
    }
}

impl Drop for SeatAcquire {
    fn drop(&mut self) {
        if let (AcquireState::Waiting(at), Some(seats)) = (&self.state, &self.seats) {
            seats.cancel_wait(*at);
        }
    }
}

/// Manual impl: the waiters would have to be locked.
impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("free", &(self.word.load(Ordering::Relaxed) / ONE_SEAT))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;
    use crate::queue::tests::TestWaker;

    /// Shows promise 66.
    #[test]
    fn a_seat_waiter_polled_with_a_new_waker_is_woken_by_it() {
        let seats = Seats::new(1);
        let taken = seats.try_acquire();
        let mut waiter = SeatAcquire::new(Some(Arc::clone(&seats)));
        let [old, new] = [TestWaker::new(), TestWaker::new()];
        for waker in [&old, &new] {
            let waker = Waker::from(Arc::clone(waker));
            assert!(waiter.poll(&Context::from_waker(&waker)).is_pending());
        }
        drop(taken);
        assert_eq!((old.count(), new.count()), (0, 1));
    }
}
