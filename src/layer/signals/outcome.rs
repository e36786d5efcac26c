//! What becomes of a request, as it is counted.

use crate::respond::Event;

/// The order is that of the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Admitted,
    Waited,
    Denied,
    Rejected,
    ShadowWaited,
    ShadowDenied,
    ShadowRejected,
    Skipped,
    StoreError,
    UnreadProxyHeader,
}

impl Outcome {
    #[inline]
    pub(crate) const fn of(event: Event<'_>, shadow: bool) -> Self {
        match (event, shadow) {
            (Event::Admitted(_), _) => Self::Admitted,
            (Event::Waits(..), false) => Self::Waited,
            (Event::Waits(..), true) => Self::ShadowWaited,
            (Event::Denied(_), false) => Self::Denied,
            (Event::Denied(_), true) => Self::ShadowDenied,
            (Event::Rejected(_), false) => Self::Rejected,
            (Event::Rejected(_), true) => Self::ShadowRejected,
            (Event::Skipped, _) => Self::Skipped,
            (Event::StoreError(_), _) => Self::StoreError,
            (Event::UnreadProxyHeader, _) => Self::UnreadProxyHeader,
        }
    }

    /// The label of metrics. `None` of what a request is counted for besides.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "of metrics"))]
    pub(super) const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Admitted => "admitted",
            Self::Waited => "waited",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::ShadowWaited => "shadow_waited",
            Self::ShadowDenied => "shadow_denied",
            Self::ShadowRejected => "shadow_rejected",
            Self::Skipped => "skipped",
            Self::StoreError => "store_error",
            Self::UnreadProxyHeader => return None,
        })
    }
}
