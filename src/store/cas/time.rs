//! The time by which all machines decide.

use std::time::Duration;

use crate::clock::{Clock, MonotonicClock, Tick, unix_now};
use crate::sync::{Mutex, lock};

/// How long the time of a reply is good for. After that the next reply is awaited.
const MAX_AGE: Duration = Duration::from_secs(10);
/// Two clocks differ by at most one part in this many.
const MAX_DRIFT: u32 = 2_000;

/// The store's time, computed from its last reply, or that of this machine if the store does not
/// report its time.
///
/// The computed time is never ahead of the store's: it counts from when the reply arrived, not from
/// when it was sent, and a little slower than this machine's clock. So it is late by as long as the
/// reply took, and a decision is as old as if its request had arrived earlier.
#[derive(Debug, Default)]
pub(in crate::store) struct StoreTime(Mutex<Source>);

#[derive(Clone, Copy, Debug, Default)]
enum Source {
    /// Nothing has been read yet.
    #[default]
    Unknown,
    /// The store does not report its time.
    ThisMachine,
    /// The store's time, and when it arrived.
    Store { time: Tick, read_at: Tick },
}

impl StoreTime {
    /// The present moment; `None` if a reply of the store is needed first.
    pub(in crate::store) fn now(&self) -> Option<Tick> {
        match *lock(&self.0) {
            Source::Unknown => None,
            Source::ThisMachine => Some(unix_now()),
            Source::Store { time, read_at } => {
                let age = MonotonicClock.now().since(read_at);
                (age <= MAX_AGE).then(|| time.plus(age.saturating_sub(age / MAX_DRIFT)))
            }
        }
    }

    /// Whether it is that of this machine, because the store does not report its time.
    pub(in crate::store) fn is_of_this_machine(&self) -> bool {
        matches!(*lock(&self.0), Source::ThisMachine)
    }

    /// Learns from a reply that has just arrived. Returns the present moment.
    pub(in crate::store) fn learn(&self, server_time: Option<Tick>) -> Tick {
        let mut source = lock(&self.0);
        let Some(time) = server_time else {
            *source = Source::ThisMachine;
            return unix_now();
        };
        let read_at = MonotonicClock.now();
        *source = Source::Store { time, read_at };
        time
    }
}
