//! The seats of a waiting room: how many are free, and the services that wait for one, in order.
//!
//! A seat that is released goes to the first that waits, and only that one is woken. If it is dropped
//! before it has taken the seat, it releases it again.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{Line, Order, Place, Precedence};
use crate::key::Priority;
use crate::sync::{Mutex, lock};

/// Services wait in the order of their polls.
const FAIR: Precedence = Precedence {
    priority: Priority::HIGH,
    order: Order::Oldest,
};

pub(crate) struct Seats(Mutex<Room>);

struct Room {
    free: u32,
    /// A wait ends with a seat.
    line: Line<(), ()>,
}

/// A taken seat. Dropping it releases the seat.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Seats>);

/// The seat that a service needs before it is ready. A clone of the service needs one of its own.
#[derive(Debug)]
pub(crate) struct SeatAcquire {
    pub(crate) seat: RequestSeat,
    /// Where the service waits.
    place: Option<Place>,
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
        let (free, line) = (seats, Line::default());
        Arc::new(Self(Mutex::new(Room { free, line })))
    }

    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<Seat> {
        let mut room = lock(&self.0);
        room.free = room.free.checked_sub(1)?;
        Some(Seat(Arc::clone(self)))
    }

    fn release(&self) {
        let mut room = lock(&self.0);
        let Some((first, _)) = room.line.first() else {
            room.free += 1;
            return;
        };
        let waker = room.line.end(first, ());
        drop(room);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl SeatAcquire {
    pub(crate) fn new(seats: Option<Arc<Seats>>) -> Self {
        let seat = match seats {
            Some(seats) => RequestSeat::Of(seats),
            None => RequestSeat::NotRequired,
        };
        Self { seat, place: None }
    }

    /// Ready when the service has a seat, or if seats are not limited.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        match self.seat {
            RequestSeat::Of(_) => self.poll_seat(cx.waker()),
            _ => Poll::Ready(()),
        }
    }

    fn poll_seat(&mut self, waker: &Waker) -> Poll<()> {
        let RequestSeat::Of(seats) = &self.seat else {
            return Poll::Ready(());
        };
        let mut room = lock(&seats.0);
        let mut polled = Poll::Ready(());
        // Dropped without the lock.
        let mut stale = None;
        if self.place.is_none() && room.free > 0 {
            room.free -= 1;
        } else {
            let place = self.place.unwrap_or_else(|| room.line.push(FAIR, 1, ()));
            (polled, stale) = room.line.poll(place, waker);
            self.place = polled.is_pending().then_some(place);
        }
        drop(room);
        drop(stale);
        if polled.is_pending() {
            return Poll::Pending;
        }
        self.seat = RequestSeat::Has(Seat(Arc::clone(seats)));
        Poll::Ready(())
    }

    /// Releases the seat, if one is held.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let RequestSeat::Has(_) = self.seat {
            drop(self.take_seat());
        }
    }

    /// Moves the seat to a request that waits.
    pub(crate) fn take_seat(&mut self) -> RequestSeat {
        let without = self.seat.without();
        mem::replace(&mut self.seat, without)
    }
}

/// The seat of a request, which it needs if it has to wait and seats are limited.
#[derive(Debug)]
pub(crate) enum RequestSeat {
    NotRequired,
    Of(Arc<Seats>),
    Has(Seat),
}

impl RequestSeat {
    /// Takes a seat if the request needs one. Returns whether it may wait.
    pub(crate) fn try_acquire(&mut self) -> bool {
        if let Self::Of(seats) = self {
            let Some(seat) = seats.try_acquire() else {
                return false;
            };
            *self = Self::Has(seat);
        }
        true
    }

    /// That of another request, which has none yet.
    fn without(&self) -> Self {
        match self {
            Self::NotRequired => Self::NotRequired,
            Self::Of(seats) | Self::Has(Seat(seats)) => Self::Of(Arc::clone(seats)),
        }
    }
}

/// Manual impl: a clone of a service has no seat yet.
impl Clone for SeatAcquire {
    fn clone(&self) -> Self {
        let (seat, place) = (self.seat.without(), None);
        Self { seat, place }
    }
}

impl Drop for SeatAcquire {
    fn drop(&mut self) {
        let (Some(place), RequestSeat::Of(seats)) = (self.place, &self.seat) else {
            return;
        };
        let left = lock(&seats.0).line.remove(place);
        if let Some((Some(()), _)) = left {
            seats.release();
        }
    }
}

/// Manual impl: services that wait are not shown.
impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("free", &lock(&self.0).free)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_seat_waiter_polled_with_a_new_waker_is_woken_by_it() {
        let seats = Seats::new(1);
        let taken = seats.try_acquire();
        let mut waiter = SeatAcquire::new(Some(Arc::clone(&seats)));
        let [old, new] = [(); 2].map(|()| Arc::<Counter>::default());
        for waker in [&old, &new] {
            let waker = Waker::from(Arc::clone(waker));
            assert!(waiter.poll(&Context::from_waker(&waker)).is_pending());
        }
        drop(taken);
        let woken = [old, new].map(|waker| waker.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1]);
    }
}
