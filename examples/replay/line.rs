//! The queued requests of a key, and when each is released.
//!
//! The state of an algorithm holds the length of its queue, but not the requests. A replay needs them
//! to see whether a cancelled request is still queued, and when the others are released.

use std::collections::VecDeque;

use tower_throttle::{Quota, clock::Tick};

/// The queued requests of one key, the next one first.
#[derive(Default)]
pub(crate) struct Line {
    queue: VecDeque<Queued>,
}

struct Queued {
    /// The number of the request; later requests have higher numbers. None once the state that
    /// queued it was reset: it is released at its turn, but cancelling it moves no other request.
    number: Option<u64>,
    turn: Tick,
    units: u64,
}

impl Line {
    pub(crate) fn join(&mut self, number: u64, turn: Tick, units: u64) {
        let queued = Queued {
            number: Some(number),
            turn,
            units,
        };
        // Nearly always the end. After a refund, a later request can have an earlier turn.
        let at = match self.queue.back() {
            Some(last) if last.turn > turn => self.queue.partition_point(|one| one.turn <= turn),
            _ => self.queue.len(),
        };
        self.queue.insert(at, queued);
    }

    /// Removes a request whose turn has come; returns its turn and its cost.
    pub(crate) fn next_due(&mut self, now: Tick) -> Option<(Tick, u64)> {
        if self.queue.front()?.turn > now {
            return None;
        }
        let queued = self.queue.pop_front()?;
        Some((queued.turn, queued.units))
    }

    /// Removes request `number` if it is still queued, and moves the requests behind it up by as many
    /// intervals as it cost. Returns its cost.
    ///
    /// Remove all due requests first.
    pub(crate) fn leave(&mut self, number: u64, now: Tick, quota: &Quota) -> Option<u64> {
        let at = self
            .queue
            .iter()
            .position(|queued| queued.number == Some(number))?;
        let units = self.queue.remove(at)?.units;
        let up = u128::from(units) * quota.period().as_nanos() / u128::from(quota.limit());
        let up = u64::try_from(up).unwrap_or(u64::MAX);
        for queued in &mut self.queue {
            if queued.number > Some(number) {
                let turn = Tick::from_nanos(queued.turn.as_nanos().saturating_sub(up));
                queued.turn = turn.max(now);
            }
        }
        self.queue
            .make_contiguous()
            .sort_by_key(|queued| queued.turn);
        Some(units)
    }

    /// Keeps the turns, but later cancellations change nothing: the state was reset.
    pub(crate) fn detach(&mut self) {
        for queued in &mut self.queue {
            queued.number = None;
        }
    }
}
