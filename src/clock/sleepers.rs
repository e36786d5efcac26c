//! The wakers of futures that wait for a moment.

use std::collections::BTreeMap;
use std::task::Waker;

use super::Tick;

/// Wakers by deadline. Each sleeping future has one entry, which it removes when it is dropped.
#[derive(Debug)]
pub(super) struct Sleepers {
    by_deadline: BTreeMap<SleeperId, Waker>,
    next: u64,
}

/// The deadline, and a number that distinguishes sleepers with the same deadline.
pub(super) type SleeperId = (Tick, u64);

impl Sleepers {
    pub(super) const fn new() -> Self {
        Self {
            by_deadline: BTreeMap::new(),
            next: 0,
        }
    }

    /// Adds a sleeper, or replaces the deadline and the waker of the sleeper with this `id`.
    pub(super) fn set(
        &mut self,
        id: Option<SleeperId>,
        deadline: Tick,
        waker: &Waker,
    ) -> SleeperId {
        let id = match id {
            Some(id) if id.0 == deadline => id,
            Some(id) => {
                self.by_deadline.remove(&id);
                (deadline, id.1)
            }
            None => {
                self.next += 1;
                (deadline, self.next)
            }
        };
        self.by_deadline
            .entry(id)
            .and_modify(|kept| kept.clone_from(waker))
            .or_insert_with(|| waker.clone());
        id
    }

    pub(super) fn remove(&mut self, id: SleeperId) -> Option<Waker> {
        self.by_deadline.remove(&id)
    }

    /// Removes the sleepers whose deadline has come. The caller wakes them after it has released
    /// its lock: a waker may poll, and a poll may sleep again.
    pub(super) fn take_due(&mut self, now: Tick) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(first) = self.by_deadline.first_entry() {
            if first.key().0 > now {
                break;
            }
            due.push(first.remove());
        }
        due
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.by_deadline
            .keys()
            .next()
            .map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sleeper_is_due_once_at_its_deadline_unless_it_was_removed() {
        let (mut sleepers, waker) = (Sleepers::new(), Waker::noop());
        let ids = [5, 5, 5, 7].map(|at| sleepers.set(None, Tick::from_nanos(at), waker));
        sleepers.set(Some(ids[0]), Tick::from_nanos(8), waker);
        assert!(sleepers.remove(ids[1]).is_some());
        assert_eq!(sleepers.next_deadline(), Some(Tick::from_nanos(5)));
        let due = [4, 5, 6, 7, 8, 9].map(|now| sleepers.take_due(Tick::from_nanos(now)).len());
        assert_eq!(due, [0, 1, 0, 1, 1, 0]);
        assert_eq!(sleepers.next_deadline(), None);
    }
}
