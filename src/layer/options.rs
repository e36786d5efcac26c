//! What happens to a request after a decision.

use std::time::Duration;

use super::keyed::KeyedBackend;
use super::state::LayerState;
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::queue::{Order, WhenFull};

/// What happens to requests while the backend cannot decide.
///
/// This is about outages. An error that does not go away by itself, such as a wrong password, denies
/// requests either way: otherwise the limit would be off without being noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreError {
    /// They pass, unlimited.
    #[default]
    Allow,
    /// They are denied; in HTTP with 503.
    Deny,
}

/// The settings of a layer that are plain values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LayerOptions {
    pub(super) shadow: bool,
    /// Responses do not state the limit, whatever headers are set.
    pub(super) silent: bool,
    pub(super) on_store_error: OnStoreError,
    pub(super) share_decision: bool,
    pub(super) order: Order,
    pub(super) when_full: WhenFull,
}

/// What happens to a request.
pub(super) enum Action {
    /// It goes on, with the decision if there is one.
    Pass(Option<Decision>),
    /// It goes on after this long, if it can wait. Not counted yet.
    Wait(Duration, Decision),
    Deny(RateLimited),
}

impl LayerOptions {
    /// Whether an admitted request has to wait behind the waiters of its key. `line_id` returns the
    /// line of the key.
    ///
    /// They came first, even if the backend has room for the new request now: their turn has come
    /// and they have not gone on yet, or the key was reset.
    #[inline]
    fn must_queue(self, state: &LayerState, line_id: &dyn Fn() -> u64, cost: u64) -> bool {
        let may_wait = state.lines.has_waiters() && !self.shadow && cost > 0;
        may_wait && !state.lines.lock_line(line_id()).is_empty()
    }

    /// What happens to a request that was `decided`; counts it, unless it waits. `line_id` returns
    /// the line of its key.
    pub(super) fn resolve(
        self,
        state: &LayerState,
        backend: &dyn KeyedBackend,
        line_id: &dyn Fn() -> u64,
        cost: u64,
        decided: Result<Decision, StoreError>,
    ) -> Action {
        let counts = &state.counts;
        state.report_losses(|| backend.losses());
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => {
                counts.record_store_error();
                state.signals().record_store_error(&error);
                let allow = self.on_store_error == OnStoreError::Allow && error.is_transient();
                return if allow || self.shadow {
                    Action::Pass(None)
                } else {
                    Action::Deny(RateLimited::unavailable(error))
                };
            }
        };
        match decision.verdict {
            Verdict::Admit if self.must_queue(state, line_id, cost) => {
                Action::Wait(Duration::ZERO, decision)
            }
            Verdict::Admit => {
                let _ = state.record_admitted();
                Action::Pass(Some(decision))
            }
            Verdict::Wait(wait) => {
                if self.shadow {
                    counts.record_waited(true);
                    state.signals().record_waited(&decision, true);
                    Action::Pass(Some(decision))
                } else {
                    Action::Wait(wait, decision)
                }
            }
            Verdict::Deny => {
                counts.record_denied(self.shadow);
                state.signals().record_denied(&decision, self.shadow);
                if self.shadow {
                    Action::Pass(Some(decision))
                } else {
                    Action::Deny(state.denial_error(&|| backend.quotas(), decision))
                }
            }
        }
    }
}
