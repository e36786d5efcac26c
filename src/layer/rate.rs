//! The gate of a rate limit: a backend, and the lines of the requests that wait.

use std::{
    fmt,
    hash::Hash,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::claim::{Claim, refresh_decision};
use super::gate::{Ask, Entry, Exit, Gate, Limiting, MayWait, Passed};
use super::keyed::{AtKey, KeyedBackend, poll_once};
use super::options::OnStoreError;
use super::policy_cache::PolicyList;
use super::queue_epoch::QueueEpoch;
use super::state::State;
use super::waiter_refund::refund_to_waiters;
use crate::backend::{Backend, IntoBackend, Op};
use crate::decision::{CompactDecision, Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::queue::{Order, RequestSeat, SeatPermit};
use crate::respond::Settle;

/// A rate limit as a layer has it: the backend of `L`, which is an algorithm or a limiter of a store.
pub struct Rate<L: IntoBackend> {
    state: Arc<State<L::Backend>>,
    pub(super) on_store_error: OnStoreError,
    pub(super) order: Order,
}

type Decided = Result<Decision, StoreError>;

/// What a request has while it waits.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub enum RateWait<F> {
    Decision(Deciding<F>),
    Turn(Turn),
}

/// The backend's decision is pending.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Deciding<F> {
    /// Boxed, because it would be most of the response future, even if the backend is never pending.
    future: Box<F>,
    ask: Ask,
    seat: RequestSeat,
    timeout: Option<Duration>,
}

/// The request is in line.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Turn {
    claim: Claim,
    /// Released when the request goes on or is denied.
    seat: Option<SeatPermit>,
    /// The one by which it waits.
    decision: CompactDecision,
    figures: bool,
    keep: bool,
}

/// What happens to a request.
enum Action {
    /// It goes on, with the decision if there is one.
    Pass(Option<Decision>),
    /// It goes on after this long, if it can wait. Not counted yet.
    Wait(Duration, Decision),
    Deny(RateLimited),
}

impl<L: IntoBackend> Rate<L> {
    pub(super) fn new(backend: L::Backend) -> Self {
        Self {
            state: Arc::new(State::new(backend)),
            on_store_error: OnStoreError::default(),
            order: Order::default(),
        }
    }

    /// The same with another backend; `None` if something else has the state.
    pub(super) fn map_backend<M: IntoBackend>(
        self,
        change: impl FnOnce(L::Backend) -> M::Backend,
    ) -> Option<Rate<M>> {
        Some(Rate {
            state: Arc::new(self.state.map_backend(change)?),
            on_store_error: self.on_store_error,
            order: self.order,
        })
    }

    fn backend(&self) -> &L::Backend {
        &self.state.backend
    }

    /// The backend, with the key.
    fn at<'a, K>(&'a self, key: &'a K) -> AtKey<'a, K, L::Backend> {
        AtKey {
            state: &self.state,
            key,
        }
    }

    /// Does what the backend has decided. `epoch` is that of the decision if it was made at once.
    fn handle<K: Hash>(
        &self,
        key: &K,
        ask: Ask,
        decided: Decided,
        epoch: Option<QueueEpoch>,
        may_wait: MayWait<'_>,
    ) -> Entry<Claim, RateWait<<L::Backend as Backend<K>>::Future>>
    where
        L::Backend: Backend<K>,
    {
        let backend = self.at(key);
        let line_id = || self.state.line_id(key);
        let (decided, epoch) = self.make_room(&backend, &line_id, ask, decided, epoch);
        let mut claim = Claim::new(ask.cost, epoch);
        match self.resolve(&backend, &line_id, ask, decided) {
            Action::Pass(decision) => {
                let ticket = decision.filter(|_| ask.keep).map(|decision| {
                    claim.record(&decision);
                    claim
                });
                let decision = decision.filter(|_| ask.figures);
                Entry::Pass(Passed {
                    ticket,
                    decision: decision.as_ref().map(CompactDecision::new),
                })
            }
            Action::Wait(wait, decision) => {
                claim.record(&decision);
                let joined = claim.enqueue(&self.state, line_id(), &backend, wait, self.order);
                let MayWait { mut seat, timeout } = may_wait;
                let waits =
                    claim.wait_or_deny(&self.state, &backend, joined, timeout, &mut seat, decision);
                waits.map_or_else(Entry::Deny, |decision| {
                    Entry::Wait(RateWait::Turn(Turn {
                        claim,
                        seat: seat.into_permit(),
                        decision,
                        figures: ask.figures,
                        keep: ask.keep,
                    }))
                })
            }
            Action::Deny(denied) => Entry::Deny(denied),
        }
    }

    /// With [`Order::Newest`], a new request that was denied may take the place of one that waits.
    fn make_room(
        &self,
        backend: &dyn KeyedBackend,
        line_id: &dyn Fn() -> u64,
        ask: Ask,
        decided: Decided,
        epoch: Option<QueueEpoch>,
    ) -> (Decided, Option<QueueEpoch>) {
        let (state, cost) = (&self.state, ask.cost);
        let denial = match &decided {
            Ok(decision) if self.order == Order::Newest && decision.is_denied() => *decision,
            _ => return (decided, epoch),
        };
        if ask.shadow || !state.lines.has_waiters() {
            return (decided, epoch);
        }
        if epoch.is_none() {
            let taken_over = state.take_over(line_id(), backend, cost, denial);
            return (Ok(taken_over.unwrap_or(denial)), None);
        }
        match state.shed_and_retry(line_id(), backend, cost, denial) {
            Some((again, then)) => (Ok(again), Some(then)),
            None => (decided, epoch),
        }
    }

    /// What happens to a request that was `decided`; counts it, unless it waits.
    fn resolve(
        &self,
        backend: &dyn KeyedBackend,
        line_id: &dyn Fn() -> u64,
        ask: Ask,
        decided: Decided,
    ) -> Action {
        let state = &self.state;
        state.report_losses(|| backend.losses());
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => {
                state.counts.record_store_error();
                state.signals().record_store_error(&error);
                let allow = self.on_store_error == OnStoreError::Allow && error.is_transient();
                return if allow || ask.shadow {
                    Action::Pass(None)
                } else {
                    Action::Deny(RateLimited::unavailable(error))
                };
            }
        };
        match decision.verdict {
            // Those in line came first, even if the backend has room for the new request now: their
            // turn has come and they have not gone on yet, or the key was reset.
            Verdict::Admit
                if state.lines.has_waiters()
                    && !ask.shadow
                    && ask.cost > 0
                    && !state.lines.lock_line(line_id()).is_empty() =>
            {
                Action::Wait(Duration::ZERO, decision)
            }
            Verdict::Admit => {
                let _ = state.record_admitted();
                Action::Pass(Some(decision))
            }
            Verdict::Wait(wait) if !ask.shadow => Action::Wait(wait, decision),
            Verdict::Wait(_) => {
                state.record_waited(&decision, true);
                Action::Pass(Some(decision))
            }
            Verdict::Deny => {
                state.record_denied(&decision, ask.shadow);
                if ask.shadow {
                    Action::Pass(Some(decision))
                } else {
                    Action::Deny(state.denial_error(&|| backend.quotas(), decision))
                }
            }
        }
    }
}

impl<L: IntoBackend> Limiting for Rate<L> {
    type Limiter = L::Backend;

    #[inline]
    fn state(&self) -> &Arc<State<L::Backend>> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut Arc<State<L::Backend>> {
        &mut self.state
    }
}

impl<K, L> Gate<K> for Rate<L>
where
    K: Hash,
    L: IntoBackend<Backend: Backend<K>>,
{
    type Ticket = Claim;
    type Wait = RateWait<<L::Backend as Backend<K>>::Future>;
    type Settling = <L::Backend as Backend<K>>::Future;
    /// The decision, and the epoch before it.
    type Begun = (<L::Backend as Backend<K>>::Future, QueueEpoch);

    #[expect(
        clippy::inline_always,
        reason = "what was decided on an admitted request is not written to memory"
    )]
    #[inline(always)]
    fn begin(&self, key: &K, ask: Ask) -> Result<Option<Claim>, Self::Begun> {
        let epoch = QueueEpoch::current(&self.state.lines);
        let quickly = !(ask.figures || ask.keep || self.state.lines.has_waiters());
        match self.backend().take(key, ask.cost, quickly) {
            None => {
                self.state.report_losses(|| self.backend().losses());
                Ok(None)
            }
            Some(deciding) => Err((deciding, epoch)),
        }
    }

    #[inline(never)]
    fn enter(
        &self,
        key: &K,
        ask: Ask,
        (mut deciding, epoch): Self::Begun,
        may_wait: MayWait<'_>,
    ) -> Entry<Claim, Self::Wait> {
        match poll_once(&mut deciding) {
            Poll::Ready(decided) => self.handle(key, ask, decided, Some(epoch), may_wait),
            Poll::Pending => Entry::Wait(RateWait::Decision(Deciding {
                future: Box::new(deciding),
                ask,
                timeout: (may_wait.timeout)(),
                seat: may_wait.seat,
            })),
        }
    }

    fn poll(
        &self,
        key: &K,
        wait: &mut Self::Wait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Passed<Claim>, RateLimited>> {
        if let RateWait::Decision(deciding) = wait {
            let decided = ready!(Pin::new(&mut deciding.future).poll(cx));
            let timeout = deciding.timeout;
            let may_wait = MayWait {
                seat: mem::replace(&mut deciding.seat, RequestSeat::NotRequired),
                timeout: &|| timeout,
            };
            match self.handle(key, deciding.ask, decided, None, may_wait) {
                Entry::Pass(passed) => return Poll::Ready(Ok(passed)),
                Entry::Deny(denied) => return Poll::Ready(Err(denied)),
                Entry::Wait(in_line) => *wait = in_line,
            }
        }
        let RateWait::Turn(turn) = wait else {
            return Poll::Pending;
        };
        let (backend, claim) = (self.at(key), &mut turn.claim);
        if let Err(shed) = ready!(claim.poll_turn(&self.state, &backend, cx)) {
            turn.seat = None;
            let decision = turn.decision.get();
            return Poll::Ready(Err(claim.fail_wait(&self.state, &backend, shed, decision)));
        }
        if let Some(receipt) = claim.receipt().filter(|_| turn.keep) {
            claim.set_receipt(self.backend().receipt_at_turn(key, receipt));
        }
        let decision = turn
            .figures
            .then(|| refresh_decision(&backend, turn.decision));
        claim.commit(&self.state);
        let ticket = mem::replace(claim, Claim::new(0, None));
        Poll::Ready(Ok(Passed {
            ticket: turn.keep.then_some(ticket),
            decision,
        }))
    }

    fn leave(&self, key: &K, wait: Self::Wait) {
        if let RateWait::Turn(mut turn) = wait {
            turn.claim.leave(&self.state, &self.at(key));
        }
    }

    fn settle(&self, key: &K, claim: &mut Claim, settle: Settle) -> Option<Self::Settling> {
        match claim.settlement_op(settle)? {
            op @ (Op::Refund(..) | Op::Forgive(..))
                if claim.is_immediate() && self.state.lines.has_waiters() =>
            {
                let mut refund = None;
                let mut start = || refund = Some(self.backend().apply(key, op));
                let line_id = self.state.line_id(key);
                refund_to_waiters(&self.state, line_id, &self.at(key), &mut start);
                refund
            }
            op => Some(self.backend().apply(key, op)),
        }
    }

    fn policies(&self, _: &Decision) -> PolicyList<'_> {
        self.state.quota_policies(&|| self.backend().quotas())
    }
}

impl<K, Res, L> Exit<K, Res> for Rate<L>
where
    Self: Gate<K, Ticket = Claim>,
    L: IntoBackend,
{
    type Response = Res;

    #[inline]
    fn exit<E>(_: Option<Claim>, result: Result<Res, E>) -> Result<Res, E> {
        result
    }
}

/// Manual impl: derive would require `L: Clone`.
impl<L: IntoBackend> Clone for Rate<L> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            ..*self
        }
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<L: IntoBackend> fmt::Debug for Rate<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rate")
            .field("backend", &format_args!("{}", std::any::type_name::<L>()))
            .field("on_store_error", &self.on_store_error)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
