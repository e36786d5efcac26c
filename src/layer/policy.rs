//! What becomes of a limiter's answer.

use std::{hash::Hash, time::Duration};

use super::state::State;
use crate::decision::Decision;
use crate::decision::Verdict;
use crate::error::RateLimited;
use crate::error::StoreError;
use crate::limiter::KeyedLimiter;
use crate::queue::Order;
use crate::queue::WhenFull;

/// What becomes of requests while the limiter cannot decide.
///
/// This is about outages. An error that somebody has to mend, such as a wrong password, denies
/// requests either way: a limit that is silently off would be noticed by nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreError {
    /// They pass, unlimited.
    #[default]
    Allow,
    /// They are turned away; in HTTP with 503.
    Deny,
}

/// The plain options of a layer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policy {
    pub(super) shadow: bool,
    pub(super) on_store_error: OnStoreError,
    /// Whether the service finds the decision in the request.
    pub(super) share: bool,
    /// Who goes first of those who wait.
    pub(super) order: Order,
    pub(super) when_full: WhenFull,
}

/// What happens to a request.
pub(super) enum Next {
    /// It goes on, with the decision if there was one.
    Pass(Option<Decision>),
    /// It goes on after this long, if it can wait. Not counted yet.
    Wait(Duration, Decision),
    Deny(RateLimited),
}

impl Policy {
    /// The same, but an admitted request waits behind those who wait for the same key. They were
    /// there before it, even if the limiter has room for it: their turn has come and they have not
    /// gone yet, or the key was reset.
    #[inline]
    pub(super) fn fall_in<K, L>(self, state: &State<L>, key: &K, cost: u64, next: Next) -> Next
    where
        K: Hash,
        L: KeyedLimiter<K>,
    {
        if !state.lines.anyone() || self.shadow || cost == 0 {
            return next;
        }
        match next {
            Next::Pass(Some(decision)) if !state.lines.hold(key).is_empty() => {
                Next::Wait(Duration::ZERO, decision)
            }
            next => next,
        }
    }

    /// What happens to a request about which the limiter said `decided`; counts it.
    pub(super) fn judge<K, L: KeyedLimiter<K>>(
        self,
        state: &State<L>,
        decided: Result<Decision, StoreError>,
    ) -> Next {
        let counts = &state.counts;
        state.watch::<K>();
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => {
                counts.failed();
                state.signals().failed(&error);
                let allow = self.on_store_error == OnStoreError::Allow && error.is_transient();
                return if allow || self.shadow {
                    Next::Pass(None)
                } else {
                    Next::Deny(RateLimited::unavailable(error))
                };
            }
        };
        match decision.verdict {
            Verdict::Admit => {
                state.admitted();
                Next::Pass(Some(decision))
            }
            Verdict::Wait(wait) => {
                if self.shadow {
                    counts.waited();
                    state.signals().waits(&decision);
                    Next::Pass(Some(decision))
                } else {
                    Next::Wait(wait, decision)
                }
            }
            Verdict::Deny => {
                counts.denied();
                state.signals().denied(&decision, self.shadow);
                if self.shadow {
                    Next::Pass(Some(decision))
                } else {
                    Next::Deny(state.denial(decision))
                }
            }
        }
    }
}
