//! Room for a new request in a full line, if it goes before others.

use super::keyed::{KeyedBackend, single_quota};
use super::queue_epoch::QueueEpoch;
use super::state::LayerState;
use crate::clock::nanos;
use crate::decision::{Decision, Verdict};
use crate::queue::{self, Precedence};
use crate::receipt::Receipt;

impl LayerState {
    /// Makes room for a new request that was denied, by shedding waiters: as few as possible, and
    /// none if the request would be denied all the same. Returns what the backend says then.
    #[cold]
    pub(super) fn shed_and_retry(
        &self,
        line_id: u64,
        backend: &dyn KeyedBackend,
        (cost, place): (u64, Precedence),
        denied: Decision,
    ) -> Option<(Decision, QueueEpoch)> {
        let retry = denied.retry_after?;
        let mut line = self.lines.lock_line(line_id);
        let quota = || single_quota(&backend.quotas());
        let decide = |freed, peek| backend.decide_after_refund(freed, cost, peek);
        let mut freed = 0_u64;
        let mut sums = Vec::new();
        for one in line.costs_to_shed(cost, place, quota) {
            freed = freed.saturating_add(one);
            sums.push(freed);
            if freed >= cost {
                break;
            }
        }
        // If that is not enough, it is not the line that denies.
        match decide(freed, true) {
            Some(decision) if decision.is_denied() => return None,
            Some(_) => {}
            None => {
                drop(line);
                let taken_over = self.take_over(line_id, (cost, place), denied)?;
                return Some((taken_over, QueueEpoch::current(&self.lines)));
            }
        }
        let decide = |freed| decide(freed, false).filter(|decision| !decision.is_denied());
        let (shed, decision) = (1..)
            .zip(sums)
            .find_map(|(shed, freed)| Some((shed, decide(freed)?)))?;
        for _ in 0..shed {
            line.shed(cost, retry, quota);
        }
        line.advance_epoch();
        Some((decision, QueueEpoch::current(&self.lines)))
    }

    /// Gives the place of the last waiter to a new request that was denied, with the cost that the
    /// waiter has taken: the backend need not know. Only if both have the same key and cost.
    #[cold]
    pub(super) fn take_over(
        &self,
        line_id: u64,
        (cost, place): (u64, Precedence),
        denied: Decision,
    ) -> Option<Decision> {
        let retry = denied.retry_after?;
        let mut line = self.lines.lock_line(line_id);
        let slot = line.shed_equal(cost, place, retry)?;
        let wait = slot.since(queue::now());
        let decision = Decision {
            verdict: Verdict::after(nanos(wait)),
            retry_after: None,
            ..denied
        };
        Some(decision.with_receipt(Receipt::LONG_AGO))
    }
}
