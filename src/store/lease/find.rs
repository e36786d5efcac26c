//! What the state in the table says about requests for which this machine has no units.

use super::held::{Held, LeasedState};
use crate::algorithm::Portable;
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::store::local::{Effect, Outcome};

/// What a state says about a request.
pub(super) enum Found {
    Denied(Decision),
    /// Only the store knows.
    Unknown,
}

impl Outcome for Found {
    fn effect(&self) -> Effect {
        match self {
            Self::Denied(_) => Effect::Denied,
            Self::Unknown => Effect::Read,
        }
    }
}

/// Whether a request is denied whose cost is above the `left` units of this machine. The store has to be
/// asked if it may have more, or was not asked lately. It has none before `refused_until`.
pub(super) fn find_denial<A: Portable>(
    algorithm: &A,
    state: &LeasedState<A::State>,
    now: Tick,
    (cost, left): (u64, u64),
    is_checked: bool,
    refused_until: Option<Tick>,
) -> Found {
    let mut with_own = state.fleet.clone();
    algorithm.charge(&mut with_own, now, left);
    // The units of this machine are a part of the cost.
    let looked = algorithm.peek(&with_own, now, cost.saturating_sub(left));
    let figures = algorithm.peek(&state.fleet, now, 0);
    if looked.is_denied() {
        if is_checked || refused_until.is_some() || looked.retry_after.is_none() {
            return Found::Denied(looked.with_figures_of(&figures));
        }
        return Found::Unknown;
    }
    let Some(until) = refused_until else {
        return Found::Unknown;
    };
    let wait = nanos(until.since(now));
    let denial = Decision::new(Verdict::Deny, figures.limit, 0, Some(wait), wait);
    Found::Denied(denial.with_figures_of(&figures))
}

/// What the fast path knows of a key of which nothing is left: that it is denied until the next unit
/// comes, or until the store has to be asked.
pub(super) fn denying<A: Portable>(
    algorithm: &A,
    fleet: &A::State,
    now: Tick,
    checked_until: Tick,
) -> Held {
    let looked = algorithm.peek(fleet, now, 1);
    if !looked.is_denied() {
        return Held::default();
    }
    let next = looked.retry_after.map_or(Tick::MAX, |wait| now.plus(wait));
    Held::denial(checked_until.min(next))
}
