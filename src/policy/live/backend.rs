//! The limiter of a limit whose store a file names.

use std::{
    fmt,
    future::{Future, Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::key::PolicyKey;
use crate::algorithm::AnyAlgorithm;
use crate::backend::{Backend, Bans, Fullness, IntoBackend, Losses, Op};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::{Plan, Quota};
use crate::receipt::Receipt;
use crate::store::local::Local;

type Decided = Result<Decision, StoreError>;

/// The limiter of a rate limit in a policy file, in the memory of this process or in a store. A
/// [`Handle`](crate::Handle) reads and changes its keys; only a lockout has bans.
#[derive(Clone)]
pub struct PolicyBackend {
    limiter: Arc<dyn Backend<PolicyKey, Future = PolicyDecision>>,
    /// The same limiter if it is in memory.
    memory: Option<Local<AnyAlgorithm>>,
}

/// The decision of a [`PolicyBackend`].
#[must_use = "futures do nothing unless polled"]
pub enum PolicyDecision {
    /// It was made at once; `None` after it was returned.
    Ready(Option<Decided>),
    /// A store is asked.
    Pending(Pin<Box<dyn Future<Output = Decided> + Send>>),
}

/// The same decision for each request, as a [`Plan`] says.
struct Fixed(Plan, Decision);

impl Backend<PolicyKey> for Fixed {
    type Future = Ready<Decided>;

    fn apply(&self, _: &PolicyKey, _: Op) -> Self::Future {
        ready(Ok(self.1))
    }

    fn current_decision(&self, _: &PolicyKey, _: u64) -> Option<Decision> {
        Some(self.1)
    }

    fn quotas(&self) -> Vec<Quota> {
        Vec::new()
    }

    fn plan_of(&self, _: &PolicyKey) -> Option<Plan> {
        Some(self.0)
    }
}

/// A limiter of any type, its future boxed.
struct Boxed<L>(L);

impl<L: Backend<PolicyKey>> Backend<PolicyKey> for Boxed<L> {
    type Future = PolicyDecision;

    fn apply(&self, key: &PolicyKey, op: Op) -> PolicyDecision {
        PolicyDecision::of(self.0.apply(key, op))
    }

    fn receipt_at_turn(&self, key: &PolicyKey, receipt: Receipt) -> Receipt {
        self.0.receipt_at_turn(key, receipt)
    }

    fn decide_after_refund(
        &self,
        key: &PolicyKey,
        freed: u64,
        cost: u64,
        peek: bool,
    ) -> Option<Decision> {
        self.0.decide_after_refund(key, freed, cost, peek)
    }

    fn detach(&self, key: &PolicyKey, op: Op) {
        self.0.detach(key, op);
    }

    fn current_decision(&self, key: &PolicyKey, cost: u64) -> Option<Decision> {
        self.0.current_decision(key, cost)
    }

    fn losses(&self) -> Losses {
        self.0.losses()
    }

    fn fullness(&self) -> Option<Fullness> {
        self.0.fullness()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.0.quotas()
    }

    fn plan_of(&self, key: &PolicyKey) -> Option<Plan> {
        self.0.plan_of(key)
    }

    fn max_wait(&self, key: &PolicyKey) -> Duration {
        self.0.max_wait(key)
    }
}

impl PolicyBackend {
    pub(super) fn of(limiter: impl Backend<PolicyKey>) -> Self {
        Self {
            limiter: Arc::new(Boxed(limiter)),
            memory: None,
        }
    }

    /// `None` if a limiter has to decide.
    pub(super) fn fixed(plan: Plan) -> Option<Self> {
        Some(Self::of(Fixed(plan, plan.decide(Op::Peek(0))?)))
    }

    pub(super) fn in_memory(local: Local<AnyAlgorithm>) -> Self {
        Self {
            limiter: Arc::new(Boxed(local.clone())),
            memory: Some(local),
        }
    }

    pub(super) const fn memory(&self) -> Option<&Local<AnyAlgorithm>> {
        self.memory.as_ref()
    }
}

impl Backend<PolicyKey> for PolicyBackend {
    type Future = PolicyDecision;

    fn apply(&self, key: &PolicyKey, op: Op) -> PolicyDecision {
        self.limiter.apply(key, op)
    }

    fn receipt_at_turn(&self, key: &PolicyKey, receipt: Receipt) -> Receipt {
        self.limiter.receipt_at_turn(key, receipt)
    }

    fn decide_after_refund(
        &self,
        key: &PolicyKey,
        freed: u64,
        cost: u64,
        peek: bool,
    ) -> Option<Decision> {
        self.limiter.decide_after_refund(key, freed, cost, peek)
    }

    fn detach(&self, key: &PolicyKey, op: Op) {
        self.limiter.detach(key, op);
    }

    fn current_decision(&self, key: &PolicyKey, cost: u64) -> Option<Decision> {
        self.limiter.current_decision(key, cost)
    }

    fn losses(&self) -> Losses {
        self.limiter.losses()
    }

    fn fullness(&self) -> Option<Fullness> {
        self.limiter.fullness()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.limiter.quotas()
    }

    fn plan_of(&self, key: &PolicyKey) -> Option<Plan> {
        self.limiter.plan_of(key)
    }

    fn max_wait(&self, key: &PolicyKey) -> Duration {
        self.limiter.max_wait(key)
    }
}

/// The line of a limit may be a lockout.
impl Bans for PolicyBackend {}

impl IntoBackend for PolicyBackend {
    type Backend = Self;

    /// The table is allocated now, as by a layer of its own.
    fn into_backend(self) -> Self {
        if let Some(local) = &self.memory {
            local.allocate();
        }
        self
    }
}

impl PolicyDecision {
    /// Boxed only if it is pending.
    fn of(mut future: impl Future<Output = Decided> + Send + Unpin + 'static) -> Self {
        match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => Self::Ready(Some(decided)),
            Poll::Pending => Self::Pending(Box::pin(future)),
        }
    }
}

impl Future for PolicyDecision {
    type Output = Decided;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match self.get_mut() {
            Self::Ready(decided) => Poll::Ready(
                decided
                    .take()
                    .expect("a future is not polled after it is ready"),
            ),
            Self::Pending(decided) => decided.as_mut().poll(cx),
        }
    }
}

/// Manual impl: a trait object has no `Debug`.
impl fmt::Debug for PolicyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyBackend")
            .field("quotas", &self.limiter.quotas())
            .finish_non_exhaustive()
    }
}

/// Manual impl: futures have no `Debug`.
impl fmt::Debug for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyDecision")
            .field("is_ready", &matches!(self, Self::Ready(_)))
            .finish()
    }
}
