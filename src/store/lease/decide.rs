//! Decisions that need more than the state in the table.

use std::sync::Arc;

use super::fleet::Fleet;
use crate::algorithm::Portable;
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::store::{
    cas::CasStore,
    fleet::{Slow, WhenCutOff, ensure_running},
};

/// Decides on a request at `now`, and asks for units if there are too few.
pub(super) fn decide_slow<S: CasStore, A: Portable>(
    fleet: &Arc<Fleet<S, A>>,
    hash: u64,
    name: impl FnOnce() -> Arc<str>,
    now: Tick,
    cost: u64,
) -> Result<Slow, StoreError> {
    ensure_running(fleet)?;
    let cut_off = fleet.cut_off();
    let held = cut_off.and_then(|_| fleet.node.decide_held(hash, now, cost));
    let decided = match (held, cut_off) {
        (Some(decision), _) => Slow::Decided(decision),
        (None, None) => fleet.node.decide_slow(hash, name, now, cost),
        (None, Some(WhenCutOff::Share)) => {
            Slow::Decided(fleet.node.decide_by_share(hash, name, now, cost))
        }
        (None, Some(behavior)) => {
            // So that the store is tried again.
            fleet.node.probe(hash, name, now);
            match behavior {
                WhenCutOff::Deny => Slow::Decided(denial(fleet, hash, now, cost)),
                _ => return Err(fleet.cut_off_error()),
            }
        }
    };
    if fleet.node.has_urgent() {
        fleet.link.wake.notify_one();
    }
    Ok(decided)
}

/// A denial until the store is tried again.
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
    let wait = nanos(fleet.settings.tick());
    Decision::new(Verdict::Deny, figures.limit, 0, Some(wait), wait)
}
