//! What becomes of a limiter's answer.

use std::time::Duration;

use super::state::State;
use crate::decision::Decision;
use crate::decision::Verdict;
use crate::error::RateLimited;
use crate::error::StoreError;
use crate::limiter::KeyedLimiter;

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
}

/// What happens to a request.
pub(super) enum Next {
    /// It goes on, with the decision if there was one.
    Pass(Option<Decision>),
    /// It goes on after this long.
    Wait(Duration, Decision),
    Deny(RateLimited),
}

impl Policy {
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
                counts.waited();
                state.signals().waits(&decision);
                if self.shadow {
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
