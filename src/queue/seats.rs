//! The seats of a waiting room.
//!
//! # Protocol
//! `word` holds the free seats, twice, plus one while somebody waits for one. It becomes odd and
//! even again only under the lock of `waiting`, and odd only with no seat free. So while it is odd
//! nobody takes a seat past those who wait, and whoever gives one back hands it to the first of
//! them, under the lock: one seat, one wake-up. Whoever was given a seat and leaves hands it on.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::list::List;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// In `word`: somebody waits.
const HAS_WAITERS: u64 = 1;
const ONE_SEAT: u64 = 2;

pub(crate) struct Seats {
    word: AtomicU64,
    waiting: Mutex<List<SeatWaiter>>,
}

#[derive(Debug)]
struct SeatWaiter {
    waker: Option<Waker>,
    /// There is a seat for it, and it has left the order.
    called: bool,
}

/// A seat that is taken.
#[derive(Debug)]
pub(crate) struct SeatPermit {
    seats: Arc<Seats>,
}

/// Who wants a seat, waits for one or has one. Of a service, which may be dropped or cloned at any
/// time.
#[derive(Debug)]
pub(crate) struct SeatAcquire {
    /// None where there are no seats to be had.
    seats: Option<Arc<Seats>>,
    state: AcquireState,
}

#[derive(Debug)]
enum AcquireState {
    Idle,
    SeatWaiter(u32),
    Acquired(SeatPermit),
}

impl Seats {
    pub(crate) fn new(seats: u32) -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU64::new(u64::from(seats) * ONE_SEAT),
            waiting: Mutex::new(List::default()),
        })
    }

    /// A seat, if one is free.
    pub(crate) fn sit(self: &Arc<Self>) -> Option<SeatPermit> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word >= ONE_SEAT && word & HAS_WAITERS == 0 {
            match self.swap(word, word - ONE_SEAT) {
                Ok(()) => return Some(self.seat()),
                Err(now) => word = now,
            }
        }
        None
    }

    /// A seat, or a place among those who wait for one.
    fn acquire_or_enqueue(self: &Arc<Self>, waker: &Waker) -> Result<SeatPermit, u32> {
        if let Some(seat) = self.sit() {
            return Ok(seat);
        }
        let standing = SeatWaiter {
            waker: Some(waker.clone()),
            called: false,
        };
        let mut waiting = lock(&self.waiting);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // A seat may have come back since, while nobody waited.
            let next = if word >= ONE_SEAT {
                word - ONE_SEAT
            } else {
                HAS_WAITERS
            };
            match self.swap(word, next) {
                Ok(()) if word >= ONE_SEAT => {
                    drop(waiting);
                    return Ok(self.seat());
                }
                Ok(()) => return Err(waiting.push_back(standing)),
                Err(now) => word = now,
            }
        }
    }

    /// Whether the one at `at` has been called, in which case its place is gone.
    fn ask(self: &Arc<Self>, at: u32, waker: &Waker) -> Option<SeatPermit> {
        let mut waker = Some(waker.clone());
        let mut waiting = lock(&self.waiting);
        let standing = waiting.get_mut(at)?;
        // The old one is dropped after the lock.
        std::mem::swap(&mut standing.waker, &mut waker);
        if !standing.called {
            drop(waiting);
            return None;
        }
        let gone = waiting.take(at);
        drop(waiting);
        drop(gone);
        Some(self.seat())
    }

    /// The one at `at` does not wait any longer.
    fn cancel_wait(self: &Arc<Self>, at: u32) {
        let mut waiting = lock(&self.waiting);
        let gone = waiting.take(at);
        if waiting.len() == 0 {
            self.word.fetch_and(!HAS_WAITERS, Ordering::Relaxed);
        }
        drop(waiting);
        if gone.is_some_and(|standing| standing.called) {
            drop(self.seat());
        }
    }

    fn give_back(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            while word & HAS_WAITERS == 0 {
                match self.swap(word, word + ONE_SEAT) {
                    Ok(()) => return,
                    Err(now) => word = now,
                }
            }
            let mut waiting = lock(&self.waiting);
            if let Some(at) = waiting.front() {
                waiting.unlink(at);
                if waiting.len() == 0 {
                    self.word.fetch_and(!HAS_WAITERS, Ordering::Relaxed);
                }
                let waker = waiting.get_mut(at).and_then(|standing| {
                    standing.called = true;
                    standing.waker.take()
                });
                drop(waiting);
                waker.into_iter().for_each(Waker::wake);
                return;
            }
            // They have all walked away meanwhile.
            word = self.word.load(Ordering::Relaxed);
        }
    }

    fn swap(&self, from: u64, to: u64) -> Result<(), u64> {
        self.word
            .compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .map(|_| ())
    }

    /// A seat that has been taken from `word`.
    fn seat(self: &Arc<Self>) -> SeatPermit {
        SeatPermit {
            seats: Arc::clone(self),
        }
    }
}

impl Drop for SeatPermit {
    fn drop(&mut self) {
        self.seats.give_back();
    }
}

impl SeatAcquire {
    pub(crate) const fn new(seats: Option<Arc<Seats>>) -> Self {
        Self {
            seats,
            state: AcquireState::Idle,
        }
    }

    /// Ready with a seat, or where there are none to be had.
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
                    self.state = AcquireState::SeatWaiter(at);
                    None
                }
            },
            AcquireState::SeatWaiter(at) => seats.ask(at, cx.waker()),
        };
        match got {
            Some(seat) => {
                self.state = AcquireState::Acquired(seat);
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }

    /// What the request has of it that is now handed to the service.
    #[inline]
    pub(crate) fn take_seat(&mut self) -> RequestSeat {
        match &self.seats {
            None => RequestSeat::NotRequired,
            Some(seats) => match std::mem::replace(&mut self.state, AcquireState::Idle) {
                AcquireState::Acquired(seat) => RequestSeat::Acquired(seat),
                other => {
                    self.state = other;
                    RequestSeat::SeatWaiter(Arc::clone(seats))
                }
            },
        }
    }
}

/// What a request has of a seat.
#[derive(Debug)]
pub(crate) enum RequestSeat {
    /// It needs none.
    NotRequired,
    Acquired(#[expect(dead_code, reason = "kept for its drop")] SeatPermit),
    /// It has none yet.
    SeatWaiter(Arc<Seats>),
}

impl RequestSeat {
    /// Takes a seat if it needs one. Answers whether it may wait.
    pub(crate) fn sit(&mut self) -> bool {
        if let Self::SeatWaiter(seats) = self {
            match seats.sit() {
                Some(seat) => *self = Self::Acquired(seat),
                None => return false,
            }
        }
        true
    }
}

/// A clone of a service has no seat yet.
impl Clone for SeatAcquire {
    fn clone(&self) -> Self {
        Self::new(self.seats.clone())
    }
}

impl Drop for SeatAcquire {
    fn drop(&mut self) {
        if let (AcquireState::SeatWaiter(at), Some(seats)) = (&self.state, &self.seats) {
            seats.cancel_wait(*at);
        }
    }
}

/// By hand: who waits is not shown.
impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("free", &(self.word.load(Ordering::Relaxed) / ONE_SEAT))
            .finish_non_exhaustive()
    }
}
