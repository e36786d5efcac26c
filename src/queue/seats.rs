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
const AWAITED: u64 = 1;
const SEAT: u64 = 2;

pub(crate) struct Seats {
    word: AtomicU64,
    waiting: Mutex<List<Standing>>,
}

#[derive(Debug)]
struct Standing {
    waker: Option<Waker>,
    /// There is a seat for it, and it has left the order.
    called: bool,
}

/// A seat that is taken.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
}

/// Who wants a seat, waits for one or has one. Of a service, which may be dropped or cloned at any
/// time.
#[derive(Debug)]
pub(crate) struct Chair {
    /// None where there are no seats to be had.
    seats: Option<Arc<Seats>>,
    state: State,
}

#[derive(Debug)]
enum State {
    Nothing,
    Standing(u32),
    Seated(Seat),
}

impl Seats {
    pub(crate) fn new(seats: u32) -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU64::new(u64::from(seats) * SEAT),
            waiting: Mutex::new(List::default()),
        })
    }

    /// A seat, if one is free.
    pub(crate) fn sit(self: &Arc<Self>) -> Option<Seat> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word >= SEAT && word & AWAITED == 0 {
            match self.swap(word, word - SEAT) {
                Ok(()) => return Some(self.seat()),
                Err(now) => word = now,
            }
        }
        None
    }

    /// A seat, or a place among those who wait for one.
    fn sit_or_stand(self: &Arc<Self>, waker: &Waker) -> Result<Seat, u32> {
        if let Some(seat) = self.sit() {
            return Ok(seat);
        }
        let standing = Standing {
            waker: Some(waker.clone()),
            called: false,
        };
        let mut waiting = lock(&self.waiting);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // A seat may have come back since, while nobody waited.
            let next = if word >= SEAT { word - SEAT } else { AWAITED };
            match self.swap(word, next) {
                Ok(()) if word >= SEAT => {
                    drop(waiting);
                    return Ok(self.seat());
                }
                Ok(()) => return Err(waiting.push_back(standing)),
                Err(now) => word = now,
            }
        }
    }

    /// Whether the one at `at` has been called, in which case its place is gone.
    fn ask(self: &Arc<Self>, at: u32, waker: &Waker) -> Option<Seat> {
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
    fn walk_away(self: &Arc<Self>, at: u32) {
        let mut waiting = lock(&self.waiting);
        let gone = waiting.take(at);
        if waiting.len() == 0 {
            self.word.fetch_and(!AWAITED, Ordering::Relaxed);
        }
        drop(waiting);
        if gone.is_some_and(|standing| standing.called) {
            drop(self.seat());
        }
    }

    fn give_back(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            while word & AWAITED == 0 {
                match self.swap(word, word + SEAT) {
                    Ok(()) => return,
                    Err(now) => word = now,
                }
            }
            let mut waiting = lock(&self.waiting);
            if let Some(at) = waiting.front() {
                waiting.unlink(at);
                if waiting.len() == 0 {
                    self.word.fetch_and(!AWAITED, Ordering::Relaxed);
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
    fn seat(self: &Arc<Self>) -> Seat {
        Seat {
            seats: Arc::clone(self),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.give_back();
    }
}

impl Chair {
    pub(crate) const fn new(seats: Option<Arc<Seats>>) -> Self {
        Self {
            seats,
            state: State::Nothing,
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
            State::Seated(_) => return Poll::Ready(()),
            State::Nothing => match seats.sit_or_stand(cx.waker()) {
                Ok(seat) => Some(seat),
                Err(at) => {
                    self.state = State::Standing(at);
                    None
                }
            },
            State::Standing(at) => seats.ask(at, cx.waker()),
        };
        match got {
            Some(seat) => {
                self.state = State::Seated(seat);
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }

    /// What the request has of it that is now handed to the service.
    #[inline]
    pub(crate) fn hand_over(&mut self) -> Sitting {
        match &self.seats {
            None => Sitting::Anywhere,
            Some(seats) => match std::mem::replace(&mut self.state, State::Nothing) {
                State::Seated(seat) => Sitting::Seated(seat),
                other => {
                    self.state = other;
                    Sitting::Standing(Arc::clone(seats))
                }
            },
        }
    }
}

/// What a request has of a seat.
#[derive(Debug)]
pub(crate) enum Sitting {
    /// It needs none.
    Anywhere,
    Seated(#[expect(dead_code, reason = "kept for its drop")] Seat),
    /// It has none yet.
    Standing(Arc<Seats>),
}

impl Sitting {
    /// Takes a seat if it needs one. Answers whether it may wait.
    pub(crate) fn sit(&mut self) -> bool {
        if let Self::Standing(seats) = self {
            match seats.sit() {
                Some(seat) => *self = Self::Seated(seat),
                None => return false,
            }
        }
        true
    }
}

/// A clone of a service has no seat yet.
impl Clone for Chair {
    fn clone(&self) -> Self {
        Self::new(self.seats.clone())
    }
}

impl Drop for Chair {
    fn drop(&mut self) {
        if let (State::Standing(at), Some(seats)) = (&self.state, &self.seats) {
            seats.walk_away(*at);
        }
    }
}

/// By hand: who waits is not shown.
impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("free", &(self.word.load(Ordering::Relaxed) / SEAT))
            .finish_non_exhaustive()
    }
}
