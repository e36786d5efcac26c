//! Whether a request would be limited, and by which rule.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::backend::{Backend, Op};
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::quota::Quota;

/// What one limit would decide on a request now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// The name of the limit.
    pub name: Arc<str>,
    /// What it would decide. The figures are those before the request.
    pub decision: Decision,
    /// The quota that decides, of those that the limit has. `None` for a limit on concurrency, and if the key is
    /// blocked or unlimited.
    pub quota: Option<Quota>,
    /// The request passes whatever the limit decides; see [`shadow`](super::LimitLayer::shadow).
    pub shadow: bool,
}

impl Preview {
    /// Whether the limit would deny the request, or let it wait.
    pub fn is_limited(&self) -> bool {
        !self.shadow && !self.decision.is_admitted()
    }
}

/// A [`Preview`] that may need I/O.
pub(crate) type Previewing = Pin<Box<dyn Future<Output = Result<Preview, StoreError>> + Send>>;

/// What `backend` would decide on a request of `key`. If it `waits`, it gets a place in a line where it is denied.
pub(super) fn preview<K: ?Sized, L: Backend<K> + ?Sized>(
    (name, shadow, waits): (&Arc<str>, bool, bool),
    backend: &L,
    key: &K,
    cost: u64,
) -> Previewing {
    let (name, peeking) = (Arc::clone(name), backend.apply(key, Op::Peek(cost)));
    let quotas = backend.plan_of(key).map(|(_, quotas)| quotas);
    let quotas = quotas.unwrap_or_else(|| backend.quotas());
    Box::pin(async move {
        let mut decision = peeking.await?;
        if let (true, Some(wait)) = (waits && decision.is_denied(), decision.retry_after) {
            decision.verdict = Verdict::Wait(wait);
        }
        let quota = quotas.get(decision.policy).copied();
        Ok(Preview {
            name,
            decision,
            quota,
            shadow,
        })
    })
}

/// Awaits one after the other.
pub(crate) async fn all(
    previews: Result<Vec<Previewing>, RateLimited>,
) -> Result<Vec<Preview>, RateLimited> {
    let mut all = Vec::new();
    for preview in previews? {
        all.push(preview.await.map_err(RateLimited::unavailable)?);
    }
    Ok(all)
}
