//! Decisions that need more than the state in the table.

use std::sync::Arc;

use super::fleet::Fleet;
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::store::{
    cas::CasStore,
    fleet::{Slow, WhenCutOff, ensure_running},
};

/// Decides on a request at `now`, and lists its key among those to be reported.
pub(super) fn decide_slow<S: CasStore, A: Portable>(
    fleet: &Arc<Fleet<S, A>>,
    hash: u64,
    name: impl FnOnce() -> Arc<str>,
    now: Tick,
    cost: u64,
) -> Result<Slow, StoreError> {
    ensure_running(fleet)?;
    let by_share_only = match fleet.cut_off() {
        Some(WhenCutOff::Fail) => return Err(fleet.cut_off_error()),
        Some(WhenCutOff::Deny) => return Ok(Slow::Decided(denial(fleet, hash, now, cost))),
        // A budget holds however long the store cannot be reached.
        Some(WhenCutOff::Share) => fleet.settings.rules.strict_budget.is_none(),
        None => false,
    };
    let decided = fleet.node.decide_slow(hash, name, now, cost, by_share_only);
    if fleet.node.has_urgent() {
        fleet.link.wake.notify_one();
    }
    Ok(decided)
}

/// A denial until the next interval.
fn denial<S: CasStore, A: Portable>(
    fleet: &Fleet<S, A>,
    hash: u64,
    now: Tick,
    cost: u64,
) -> Decision {
    let figures = fleet.node.peek(hash, now, 0);
    if cost == 0 {
        return figures;
    }
    let retry_after = u64::try_from(fleet.settings.interval.as_nanos()).unwrap_or(u64::MAX);
    let limit = figures.limit;
    Decision::new(Verdict::Deny, limit, 0, Some(retry_after), retry_after)
}
