//! Limits whose type only the program knows.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::backend::{Backend, Op, Stats};
use crate::clock::Tick;
use crate::decision::{Decision, LineCosts};
use crate::error::StoreError;
use crate::quota::{Plan, Quota};

type Decided = Result<Decision, StoreError>;

/// A limit of any type, in this process or in a store.
pub(crate) type AnyLimit<K> = Arc<dyn Backend<K, Future = AnyDecision>>;

/// The decision of a limit in a store, or of any type. Only one that has to be waited for is boxed.
///
/// # Cancel safety
/// The limit says what becomes of a call that is dropped: see `Cas` and `FleetLimiter`.
#[must_use = "futures do nothing unless polled"]
pub struct AnyDecision(Progress);

enum Progress {
    /// `None` after it was returned.
    Ready(Option<Decided>),
    Pending(Pin<Box<dyn Future<Output = Decided> + Send>>),
}

impl AnyDecision {
    pub(super) const fn ready(decided: Decided) -> Self {
        Self(Progress::Ready(Some(decided)))
    }

    pub(super) fn pending(deciding: impl Future<Output = Decided> + Send + 'static) -> Self {
        Self(Progress::Pending(Box::pin(deciding)))
    }

    /// The same after a first poll.
    pub(super) fn started(
        mut deciding: impl Future<Output = Decided> + Unpin + Send + 'static,
    ) -> Self {
        match Pin::new(&mut deciding).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => Self::ready(decided),
            Poll::Pending => Self::pending(deciding),
        }
    }
}

impl Future for AnyDecision {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut self.0 {
            Progress::Ready(decided) => decided.take().map_or(Poll::Pending, Poll::Ready),
            Progress::Pending(deciding) => deciding.as_mut().poll(cx),
        }
    }
}

/// Manual impl: boxed futures are not `Debug`.
impl fmt::Debug for AnyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyDecision(..)")
    }
}

pub(crate) fn any<K: 'static>(limit: impl Backend<K>) -> AnyLimit<K> {
    Arc::new(Any(limit))
}

struct Any<L>(L);

impl<K, L: Backend<K>> Backend<K> for Any<L> {
    type Future = AnyDecision;

    fn apply(&self, key: &K, op: Op) -> AnyDecision {
        AnyDecision::started(self.0.apply(key, op))
    }

    fn take_turn(&self, key: &K, cost: u64, at: Tick, late: Duration) -> Option<Decision> {
        self.0.take_turn(key, cost, at, late)
    }

    fn expected_wait(&self, key: &K, costs: LineCosts, at: Tick) -> Option<[Duration; 2]> {
        self.0.expected_wait(key, costs, at)
    }

    fn detach(&self, key: &K, op: Op) {
        self.0.detach(key, op);
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        self.0.current_decision(key, cost)
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.0.quotas()
    }

    fn plan_of(&self, key: &K) -> Option<(Plan, Vec<Quota>)> {
        self.0.plan_of(key)
    }

    fn limits(&self) -> usize {
        self.0.limits()
    }

    fn backends(&self) -> u32 {
        self.0.backends()
    }
}

/// What decides on keys under `plan`. `None` if something is counted under it.
pub(crate) fn fixed<K: 'static>(plan: Plan, rest: Option<AnyLimit<K>>) -> Option<AnyLimit<K>> {
    let decision = plan.decide(Op::Peek(0))?;
    Some(Arc::new(Fixed {
        plan,
        decision,
        rest,
    }))
}

/// A key that is blocked or has no limit. Operations that decide nothing are those of `rest`.
struct Fixed<K> {
    plan: Plan,
    decision: Decision,
    rest: Option<AnyLimit<K>>,
}

impl<K: 'static> Backend<K> for Fixed<K> {
    type Future = AnyDecision;

    fn apply(&self, key: &K, op: Op) -> AnyDecision {
        match (self.plan.decide(op), &self.rest) {
            (None, Some(rest)) => rest.apply(key, op),
            (fixed, _) => AnyDecision::ready(Ok(fixed.unwrap_or(self.decision))),
        }
    }

    fn take_turn(&self, _: &K, _: u64, _: Tick, _: Duration) -> Option<Decision> {
        Some(self.decision)
    }

    fn current_decision(&self, _: &K, _: u64) -> Option<Decision> {
        Some(self.decision)
    }

    fn quotas(&self) -> Vec<Quota> {
        Vec::new()
    }

    fn plan_of(&self, _: &K) -> Option<(Plan, Vec<Quota>)> {
        Some((self.plan, Vec::new()))
    }
}
