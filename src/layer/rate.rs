//! The gate of a rate limit: a backend, and the lines of the requests that wait.

use std::{
    fmt,
    future::Future,
    hash::Hash,
    mem,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use super::claim::{Claim, refresh_decision};
use super::gate::{
    Ask, Entry, Exit, Gate, Has, Limiting, Look, MayWait, Passed, SettlePart, rename,
};
use super::keyed::{AtKey, KeyedBackend, poll_once};
use super::options::OnStoreError;
use super::policy_cache::PolicyList;
use super::queue_epoch::QueueEpoch;
use super::state::State;
use super::waiter_refund::refund_to_waiters;
use crate::backend::{Backend, IntoBackend, Op};
use crate::clock::{Clock, MonotonicClock, MonotonicSleep, Tick, Timer};
use crate::decision::{CompactDecision, Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::key::Priority;
use crate::queue::{Order, Precedence, RequestSeat};
use crate::respond::{OwnRules, Settle, spread};

/// A rate limit as a layer has it: the backend of `L`, which is an algorithm or a limiter of a store.
pub struct Rate<L: IntoBackend> {
    state: Arc<State<L::Backend>>,
    pub(crate) on_store_error: OnStoreError,
    order: Order,
    /// Which requests may borrow.
    pub(super) lend_to: Option<Priority>,
    /// How many percent longer than it has to a denied client is told to wait at most.
    pub(super) jitter: u8,
}

type Decided = Result<Decision, StoreError>;

/// What a request has while it waits.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub enum RateWait<F> {
    Decision(Deciding<F>),
    Turn(Turn),
    /// Others may overtake it. Boxed, as few requests can be overtaken.
    Bounded(Box<Bounded>),
    /// Boxed, because few requests borrow.
    Loan(Box<Loan>),
}

/// The request waits for units that were lent to it, outside of the line.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Loan {
    until: MonotonicSleep,
    /// `None` once it has come.
    turn: Option<Turn>,
}

/// The backend's decision is pending.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Deciding<F> {
    /// Boxed, because it would be most of the response future, even if the backend is never pending.
    future: Box<F>,
    ask: Ask,
    /// Until when its client will wait.
    until: Option<Tick>,
}

/// The request is in line.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Turn {
    claim: Claim,
    /// The one by which it waits.
    decision: CompactDecision,
}

/// The request is in line until its turn comes, and at most so long.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Bounded {
    turn: Turn,
    until: MonotonicSleep,
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
    pub(crate) fn new(backend: L::Backend) -> Self {
        Self {
            state: Arc::new(State::new(backend)),
            on_store_error: OnStoreError::default(),
            order: Order::default(),
            lend_to: None,
            jitter: 0,
        }
    }

    /// Clones may have other orders. They share the lines.
    pub(super) fn set_order(&mut self, order: Order) {
        self.order = order;
        self.state.lines.add_order(order);
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

    /// Whether a request may borrow units of the time to come.
    fn lends_to(&self, ask: Ask) -> bool {
        self.lend_to.is_some_and(|least| ask.priority >= least) && !ask.shadow
    }

    /// Until when a request waits that others may overtake.
    fn until<K>(
        &self,
        key: &K,
        ask: Ask,
        client: &dyn Fn() -> Option<Tick>,
    ) -> Option<MonotonicSleep>
    where
        L::Backend: Backend<K>,
    {
        if !self.state.lines.may_overtake(self.place(ask)) {
            return None;
        }
        let longest = self.backend().max_wait(key);
        let until = MonotonicClock.now().plus(longest);
        let until = client().map_or(until, |client| client.min(until));
        (until < Tick::MAX).then(|| MonotonicClock.sleep_until(until))
    }

    /// Makes the time longer that a denied client is told.
    fn spread(&self, decision: &mut Decision) {
        if let (1.., Some(wait)) = (self.jitter, decision.retry_after) {
            let number = self.state.spread.fetch_add(1, Ordering::Relaxed);
            decision.retry_after = Some(spread(wait, u32::from(self.jitter), number));
        }
    }

    fn spread_denial(&self, denied: RateLimited) -> RateLimited {
        denied.map_decision(|decision| self.spread(decision))
    }

    /// Where in line a request goes.
    fn place(&self, ask: Ask) -> Precedence {
        Precedence {
            order: self.order,
            level: ask.priority.level(),
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
        let mut claim = Claim::new(ask, epoch);
        match self.resolve(&backend, &line_id, ask, decided) {
            Action::Pass(mut decision) => {
                // In shadow mode one that would have been denied passes.
                if let Some(decision) = &mut decision {
                    self.spread(decision);
                }
                let decided = decision.is_some();
                let ticket = decision.filter(|_| ask.keep).map(|decision| {
                    claim.record(&decision);
                    claim
                });
                let stated = |decision: &Decision| ask.figures && !decision.is_unlimited();
                let decision = decision.filter(stated);
                Ok(Has::Passed(Passed {
                    ticket,
                    decision: decision.as_ref().map(CompactDecision::new),
                    waited: false,
                    decided,
                }))
            }
            Action::Wait(wait, decision) => {
                claim.record(&decision);
                let borrows = self.lends_to(ask) && matches!(decision.verdict, Verdict::Wait(_));
                let joined = if borrows {
                    Ok(wait)
                } else {
                    claim.enqueue(&self.state, line_id(), &backend, wait, self.place(ask))
                };
                let MayWait { seat, until } = may_wait;
                let waits =
                    claim.wait_or_deny(&self.state, &backend, joined, until, seat, decision);
                match waits {
                    Ok(decision) if borrows => {
                        let until = MonotonicClock.now().plus(wait);
                        Ok(Has::Wait(RateWait::Loan(Box::new(Loan {
                            until: MonotonicClock.sleep_until(until),
                            turn: Some(Turn { claim, decision }),
                        }))))
                    }
                    Ok(decision) => {
                        let turn = Turn { claim, decision };
                        Ok(Has::Wait(match self.until(key, ask, until) {
                            None => RateWait::Turn(turn),
                            Some(until) => RateWait::Bounded(Box::new(Bounded { turn, until })),
                        }))
                    }
                    Err(denied) => {
                        if borrows {
                            claim.give_back(&backend);
                        }
                        Err(denied)
                    }
                }
            }
            Action::Deny(denied) => Err(denied),
        }
    }

    /// Asks for a ticket, whether the response is needed or not.
    pub(super) fn enter_to_keep<K: Hash>(
        &self,
        key: &K,
        ask: Ask,
        may_wait: MayWait<'_>,
    ) -> Entry<Claim, RateWait<<L::Backend as Backend<K>>::Future>>
    where
        L::Backend: Backend<K>,
    {
        let ask = Ask { keep: true, ..ask };
        let epoch = QueueEpoch::current(&self.state.lines);
        self.enter(key, ask, epoch, may_wait)
    }

    /// Settles a cost without awaiting it.
    pub(super) fn settle_unawaited<K: Hash>(&self, key: &K, claim: &Claim, settle: Settle)
    where
        L::Backend: Backend<K>,
    {
        let line_id = || self.state.line_id(key);
        claim.settle_unawaited(&self.state, &line_id, &self.at(key), settle);
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
        let (state, cost) = (&self.state, (ask.cost, self.place(ask)));
        let denial = match &decided {
            Ok(decision) if decision.is_denied() && state.lines.may_shed(self.order) => *decision,
            _ => return (decided, epoch),
        };
        if ask.shadow {
            return (decided, epoch);
        }
        if epoch.is_none() {
            let taken_over = state.take_over(line_id(), cost, denial);
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
                state.record_store_error(&error);
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

    fn queues(&self) -> bool {
        L::queues(&self.state.backend)
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        rename(&mut self.state, name, number);
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
    /// The epoch before the decision.
    type Begun = QueueEpoch;

    fn look(&self, key: &K, ask: Ask) -> Look {
        let Some(looked) = self.backend().current_decision(key, ask.cost) else {
            return Look::Unknown;
        };
        match looked.verdict {
            Verdict::Admit => Look::Passes,
            // A waiter may be shed for it.
            Verdict::Deny if !self.state.lines.may_shed(self.order) && !self.lends_to(ask) => {
                Look::Denies
            }
            Verdict::Wait(_) | Verdict::Deny => Look::Waits,
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "what was decided on an admitted request is not written to memory"
    )]
    #[inline(always)]
    fn begin(&self, key: &K, ask: Ask) -> Result<Option<Claim>, QueueEpoch> {
        let epoch = QueueEpoch::current(&self.state.lines);
        let decides =
            ask.figures || ask.keep || self.state.lines.has_waiters() || self.lends_to(ask);
        if decides || !self.backend().try_admit(key, ask.cost) {
            return Err(epoch);
        }
        self.state.report_losses(|| self.backend().losses());
        Ok(None)
    }

    #[inline(never)]
    fn enter(
        &self,
        key: &K,
        ask: Ask,
        epoch: QueueEpoch,
        may_wait: MayWait<'_>,
    ) -> Entry<Claim, Self::Wait> {
        let backend = self.backend();
        let mut deciding = if self.lends_to(ask) {
            backend.apply(key, Op::Borrow(ask.cost))
        } else {
            backend.decide(key, ask.cost)
        };
        match poll_once(&mut deciding) {
            Poll::Ready(decided) => {
                let handled = self.handle(key, ask, decided, Some(epoch), may_wait);
                handled.map_err(|denied| self.spread_denial(denied))
            }
            Poll::Pending => Ok(Has::Wait(RateWait::Decision(Deciding {
                future: Box::new(deciding),
                ask,
                until: (may_wait.until)(),
            }))),
        }
    }

    fn poll(
        &self,
        key: &K,
        wait: &mut Self::Wait,
        seat: &mut RequestSeat,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Passed<Claim>, RateLimited>> {
        if let RateWait::Decision(deciding) = wait {
            let decided = ready!(Pin::new(&mut deciding.future).poll(cx));
            let until = deciding.until;
            let may_wait = MayWait {
                seat: &mut *seat,
                until: &|| until,
            };
            let handled = self.handle(key, deciding.ask, decided, None, may_wait);
            match handled.map_err(|denied| self.spread_denial(denied))? {
                Has::Passed(passed) => return Poll::Ready(Ok(passed)),
                Has::Wait(in_line) => *wait = in_line,
            }
        }
        if let RateWait::Loan(loan) = wait {
            ready!(Pin::new(&mut loan.until).poll(cx));
            if let Some(turn) = loan.turn.take() {
                *wait = RateWait::Turn(turn);
            }
        }
        let (turn, until) = match wait {
            RateWait::Turn(turn) => (turn, None),
            RateWait::Bounded(bounded) => (&mut bounded.turn, Some(&mut bounded.until)),
            RateWait::Decision(_) | RateWait::Loan(_) => return Poll::Pending,
        };
        let (backend, claim) = (self.at(key), &mut turn.claim);
        let mut has_come = claim.poll_turn(&self.state, &backend, cx);
        if let (Poll::Pending, Some(until)) = (&has_come, until) {
            ready!(Pin::new(until).poll(cx));
            has_come = Poll::Ready(Err(claim.give_up(&self.state, &backend)));
        }
        if let Err(shed) = ready!(has_come) {
            let decision = turn.decision.get();
            let denied = claim.fail_wait(&self.state, &backend, shed, seat, decision);
            return Poll::Ready(Err(self.spread_denial(denied)));
        }
        if let Some(receipt) = claim.receipt().filter(|_| claim.keep) {
            claim.set_receipt(self.backend().receipt_at_turn(key, receipt));
        }
        let decision = claim
            .figures
            .then(|| refresh_decision(&backend, turn.decision));
        claim.commit(&self.state);
        let ticket = mem::replace(claim, Claim::new(Ask::NOTHING, None));
        Poll::Ready(Ok(Passed {
            ticket: ticket.keep.then_some(ticket),
            decision,
            waited: true,
            decided: true,
        }))
    }

    fn leave(&self, key: &K, has: Has<Self::Wait, Claim>) {
        let (backend, line_id) = (self.at(key), || self.state.line_id(key));
        match has {
            Has::Wait(RateWait::Turn(mut turn)) => turn.claim.leave(&self.state, &backend),
            Has::Wait(RateWait::Bounded(mut bounded)) => {
                bounded.turn.claim.leave(&self.state, &backend);
            }
            Has::Passed(Passed { ticket, .. }) => {
                if let Some(claim) = ticket {
                    claim.settle_unawaited(&self.state, &line_id, &backend, Settle::Refund);
                }
            }
            Has::Wait(RateWait::Loan(loan)) => {
                if let Some(turn) = loan.turn {
                    turn.claim.give_back(&backend);
                }
            }
            Has::Wait(RateWait::Decision(_)) => {}
        }
    }

    fn settle(&self, key: &K, claim: &mut Claim, settle: SettlePart<'_>) -> Option<Self::Settling> {
        match claim.settlement_op(settle(None))? {
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

    fn policies(&self, key: &K, decision: &mut Decision) -> (PolicyList<'_>, OwnRules<'_>) {
        if let Some(plan) = self.backend().plan_of(key) {
            decision.policy = 0;
            return (self.state.policy_of(plan), None);
        }
        let quotas = || self.backend().quotas();
        (self.state.quota_policies(&quotas), None)
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
            .field("lend_to", &self.lend_to)
            .finish_non_exhaustive()
    }
}
