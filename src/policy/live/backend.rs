//! The backend of a limit whose store a file names.

use std::{
    fmt,
    future::{Future, Ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::key::PolicyKey;
use crate::algorithm::AnyAlgorithm;
use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::local::Local;

type Decided = Result<Decision, StoreError>;

/// The memory of this process, or a store whose type is not known.
#[derive(Clone, Debug)]
pub(super) enum PolicyBackend {
    Memory(Local<AnyAlgorithm>),
    Shared(SharedBackend),
}

/// A backend without its type.
#[derive(Clone)]
pub(super) struct SharedBackend(Arc<dyn DynBackend>);

/// The decision of a [`PolicyBackend`].
#[derive(Debug)]
pub(super) enum PolicyDecision {
    Memory(Ready<Decided>),
    Shared(BoxDecision),
}

/// A pending decision of a store.
pub(super) struct BoxDecision(Pin<Box<dyn Future<Output = Decided> + Send>>);

/// [`Backend`] with the future boxed. No method has a default, so an implementation cannot leave one
/// out.
trait DynBackend: Send + Sync {
    fn apply(&self, key: &PolicyKey, op: Op) -> BoxDecision;
    fn decide(&self, key: &PolicyKey, cost: u64) -> BoxDecision;
    fn try_admit(&self, key: &PolicyKey, cost: u64) -> bool;
    fn receipt_at_turn(&self, key: &PolicyKey, receipt: Receipt) -> Receipt;
    fn decide_after_refund(
        &self,
        key: &PolicyKey,
        freed: u64,
        cost: u64,
        peek: bool,
    ) -> Option<Decision>;
    fn refund_replaced(&self, key: &PolicyKey, cost: u64, receipt: Receipt);
    fn detach(&self, key: &PolicyKey, op: Op);
    fn current_decision(&self, key: &PolicyKey, cost: u64) -> Option<Decision>;
    fn losses(&self) -> Losses;
    fn quotas(&self) -> Vec<Quota>;
    fn limits(&self) -> usize;
}

impl<L: Backend<PolicyKey>> DynBackend for L {
    fn apply(&self, key: &PolicyKey, op: Op) -> BoxDecision {
        BoxDecision(Box::pin(Backend::apply(self, key, op)))
    }

    fn decide(&self, key: &PolicyKey, cost: u64) -> BoxDecision {
        BoxDecision(Box::pin(Backend::decide(self, key, cost)))
    }

    fn try_admit(&self, key: &PolicyKey, cost: u64) -> bool {
        Backend::try_admit(self, key, cost)
    }

    fn receipt_at_turn(&self, key: &PolicyKey, receipt: Receipt) -> Receipt {
        Backend::receipt_at_turn(self, key, receipt)
    }

    fn decide_after_refund(
        &self,
        key: &PolicyKey,
        freed: u64,
        cost: u64,
        peek: bool,
    ) -> Option<Decision> {
        Backend::decide_after_refund(self, key, freed, cost, peek)
    }

    fn refund_replaced(&self, key: &PolicyKey, cost: u64, receipt: Receipt) {
        Backend::refund_replaced(self, key, cost, receipt);
    }

    fn detach(&self, key: &PolicyKey, op: Op) {
        Backend::detach(self, key, op);
    }

    fn current_decision(&self, key: &PolicyKey, cost: u64) -> Option<Decision> {
        Backend::current_decision(self, key, cost)
    }

    fn losses(&self) -> Losses {
        Backend::losses(self)
    }

    fn quotas(&self) -> Vec<Quota> {
        Backend::quotas(self)
    }

    fn limits(&self) -> usize {
        Backend::limits(self)
    }
}

impl SharedBackend {
    pub(super) fn new(backend: impl Backend<PolicyKey>) -> Self {
        Self(Arc::new(backend))
    }
}

impl PolicyBackend {
    /// What the limit would decide, if that is known without I/O.
    pub(super) fn look(&self, key: &PolicyKey) -> Option<Decision> {
        Backend::current_decision(self, key, 1)
    }
}

impl Backend<PolicyKey> for PolicyBackend {
    type Future = PolicyDecision;

    const HAS_FAST_PATH: bool = true;

    fn apply(&self, key: &PolicyKey, op: Op) -> PolicyDecision {
        match self {
            Self::Memory(local) => PolicyDecision::Memory(Backend::apply(local, key, op)),
            Self::Shared(SharedBackend(shared)) => PolicyDecision::Shared(shared.apply(key, op)),
        }
    }

    fn decide(&self, key: &PolicyKey, cost: u64) -> PolicyDecision {
        match self {
            Self::Memory(local) => PolicyDecision::Memory(Backend::decide(local, key, cost)),
            Self::Shared(SharedBackend(shared)) => PolicyDecision::Shared(shared.decide(key, cost)),
        }
    }

    fn try_admit(&self, key: &PolicyKey, cost: u64) -> bool {
        match self {
            Self::Memory(local) => Backend::try_admit(local, key, cost),
            Self::Shared(SharedBackend(shared)) => shared.try_admit(key, cost),
        }
    }

    fn receipt_at_turn(&self, key: &PolicyKey, receipt: Receipt) -> Receipt {
        match self {
            Self::Memory(local) => Backend::receipt_at_turn(local, key, receipt),
            Self::Shared(SharedBackend(shared)) => shared.receipt_at_turn(key, receipt),
        }
    }

    fn decide_after_refund(
        &self,
        key: &PolicyKey,
        freed: u64,
        cost: u64,
        peek: bool,
    ) -> Option<Decision> {
        match self {
            Self::Memory(local) => Backend::decide_after_refund(local, key, freed, cost, peek),
            Self::Shared(SharedBackend(shared)) => {
                shared.decide_after_refund(key, freed, cost, peek)
            }
        }
    }

    fn refund_replaced(&self, key: &PolicyKey, cost: u64, receipt: Receipt) {
        match self {
            Self::Memory(local) => Backend::refund_replaced(local, key, cost, receipt),
            Self::Shared(SharedBackend(shared)) => shared.refund_replaced(key, cost, receipt),
        }
    }

    fn detach(&self, key: &PolicyKey, op: Op) {
        match self {
            Self::Memory(local) => Backend::detach(local, key, op),
            Self::Shared(SharedBackend(shared)) => shared.detach(key, op),
        }
    }

    fn current_decision(&self, key: &PolicyKey, cost: u64) -> Option<Decision> {
        match self {
            Self::Memory(local) => Backend::current_decision(local, key, cost),
            Self::Shared(SharedBackend(shared)) => shared.current_decision(key, cost),
        }
    }

    fn losses(&self) -> Losses {
        match self {
            Self::Memory(local) => Backend::<PolicyKey>::losses(local),
            Self::Shared(SharedBackend(shared)) => shared.losses(),
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        match self {
            Self::Memory(local) => Backend::<PolicyKey>::quotas(local),
            Self::Shared(SharedBackend(shared)) => shared.quotas(),
        }
    }

    fn limits(&self) -> usize {
        match self {
            Self::Memory(local) => Backend::<PolicyKey>::limits(local),
            Self::Shared(SharedBackend(shared)) => shared.limits(),
        }
    }
}

impl IntoBackend for PolicyBackend {
    type Backend = Self;

    /// The table is allocated now, as by a layer of its own.
    fn into_backend(self) -> Self {
        if let Self::Memory(local) = &self {
            local.allocate();
        }
        self
    }
}

impl Future for PolicyDecision {
    type Output = Decided;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match self.get_mut() {
            Self::Memory(decided) => Pin::new(decided).poll(cx),
            Self::Shared(BoxDecision(decided)) => decided.as_mut().poll(cx),
        }
    }
}

/// Manual impl: a trait object has no `Debug`.
impl fmt::Debug for SharedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBackend")
            .field("quotas", &self.0.quotas())
            .finish()
    }
}

/// Manual impl: futures have no `Debug`.
impl fmt::Debug for BoxDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxDecision").finish_non_exhaustive()
    }
}
