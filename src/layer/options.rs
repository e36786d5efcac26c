//! What becomes of a limiter's answer.

use std::{hash::Hash, time::Duration};

use super::state::State;
use crate::backend::Backend;
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::queue::{Order, WhenFull};

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
pub(super) struct LayerOptions {
    pub(super) shadow: bool,
    pub(super) on_store_error: OnStoreError,
    /// Whether the service finds the decision in the request.
    pub(super) share: bool,
    /// Who goes first of those who wait.
    pub(super) order: Order,
    pub(super) when_full: WhenFull,
}

/// What happens to a request.
pub(super) enum Action {
    /// It goes on, with the decision if there was one.
    Pass(Option<Decision>),
    /// It goes on after this long, if it can wait. Not counted yet.
    Wait(Duration, Decision),
    Deny(RateLimited),
}

impl LayerOptions {
    /// The same, but an admitted request waits behind those who wait for the same key. They were
    /// there before it, even if the limiter has room for it: their turn has come and they have not
    /// gone yet, or the key was reset.
    #[inline]
    pub(super) fn defer_to_waiters<K, L>(
        self,
        state: &State<L>,
        key: &K,
        cost: u64,
        next: Action,
    ) -> Action
    where
        K: Hash,
        L: Backend<K>,
    {
        if !state.lines.anyone() || self.shadow || cost == 0 {
            return next;
        }
        match next {
            Action::Pass(Some(decision)) if !state.lines.hold(key).is_empty() => {
                Action::Wait(Duration::ZERO, decision)
            }
            next => next,
        }
    }

    /// What happens to a request about which the limiter said `decided`; counts it.
    pub(super) fn resolve<K, L: Backend<K>>(
        self,
        state: &State<L>,
        decided: Result<Decision, StoreError>,
    ) -> Action {
        let counts = &state.counts;
        state.watch::<K>();
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => {
                counts.failed();
                state.signals().failed(&error);
                let allow = self.on_store_error == OnStoreError::Allow && error.is_transient();
                return if allow || self.shadow {
                    Action::Pass(None)
                } else {
                    Action::Deny(RateLimited::unavailable(error))
                };
            }
        };
        match decision.verdict {
            Verdict::Admit => {
                state.admitted();
                Action::Pass(Some(decision))
            }
            Verdict::Wait(wait) => {
                if self.shadow {
                    counts.waited();
                    state.signals().waits(&decision);
                    Action::Pass(Some(decision))
                } else {
                    Action::Wait(wait, decision)
                }
            }
            Verdict::Deny => {
                counts.denied();
                state.signals().denied(&decision, self.shadow);
                if self.shadow {
                    Action::Pass(Some(decision))
                } else {
                    Action::Deny(state.denial(decision))
                }
            }
        }
    }
}
