//! The seats of a waiting room: how many are free, and the services that wait for one, in order.
//!
//! A seat that is released goes to the first that waits, and only that one is woken. If it is dropped
//! before it has taken the seat, it releases it again.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use super::{Line, Order, Place};
use crate::clock::Tick;
use crate::key::Weight;
use crate::receipt::Receipt;
use crate::sync::{Mutex, lock};

#[derive(Debug)]
pub(crate) struct Seats(Mutex<Room>);

#[derive(Debug)]
struct Room {
    /// 0 while a service waits.
    free: u32,
    /// A wait ends with a seat.
    line: Line,
}

/// A taken seat. Dropping it releases the seat.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Seats>);

/// The seat that a service needs before it is ready. A clone of the service needs one of its own.
#[derive(Debug)]
pub(crate) struct SeatAcquire {
    pub(crate) seat: RequestSeat,
    /// While the service waits.
    queued: Option<Place>,
}

impl Seats {
    /// Panics if there are none: the service would never be ready.
    #[track_caller]
    pub(crate) fn new(seats: u32) -> Arc<Self> {
        assert!(
            seats > 0,
            "seats: 0 is not allowed; give a number from 1 to 4294967295"
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
        let waker = room.line.end(first, Ok(Receipt::NOW));
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
        let seat = seats.map_or(RequestSeat::NotRequired, RequestSeat::Of);
        Self { seat, queued: None }
    }

    /// Ready when the service has a seat, or if seats are not limited.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        match &self.seat {
            RequestSeat::Of(_) => self.acquire(cx),
            _ => Poll::Ready(()),
        }
    }

    fn acquire(&mut self, cx: &Context<'_>) -> Poll<()> {
        let RequestSeat::Of(seats) = &self.seat else {
            return Poll::Ready(());
        };
        let mut room = lock(&seats.0);
        if self.queued.is_none() {
            if let Some(free) = room.free.checked_sub(1) {
                room.free = free;
            } else {
                // In the order of the polls.
                let queued = room.line.push(Weight::default(), Order::Oldest, Tick::MAX);
                self.queued = Some(queued);
            }
        }
        let queued = self.queued.map(|own| room.line.poll(own, cx.waker()));
        drop(room);
        if let Some((polled, _stale)) = queued {
            let _has_seat = ready!(polled);
            self.queued = None;
        }
        self.seat = RequestSeat::Has(Seat(Arc::clone(seats)));
        Poll::Ready(())
    }

    /// Releases the seat, if one is held.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let RequestSeat::Has(_) = self.seat {
            self.seat = self.seat.without();
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
        let (seat, queued) = (self.seat.without(), None);
        Self { seat, queued }
    }
}

impl Drop for SeatAcquire {
    fn drop(&mut self) {
        if let (Some(queued), RequestSeat::Of(seats)) = (self.queued, &self.seat) {
            let mut room = lock(&seats.0);
            let (_left, has_seat) = (room.line.remove(queued), room.line.ended.remove(&queued));
            drop(room);
            if has_seat.is_some() {
                seats.release();
            }
        }
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
