//! The gate of a rate limit: a backend, and the lines of the requests that wait.

use std::{
    fmt,
    hash::Hash,
    num::NonZero,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use super::gate::{
    Ask, Entry, Exit, Gate, Has, Limiting, Look, MayWait, Passed, SettlePart, poll_once, rename,
};
use super::limit_of::LimitOf;
use super::options::OnStoreError;
use super::policy_cache::PolicyList;
use super::state::State;
use super::ticket::Ticket;
use crate::backend::{Backend, IntoBackend, Op};
use crate::clock::{MonotonicClock, MonotonicSleep, Tick, Timer};
use crate::decision::{CompactDecision, Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::key::Priority;
use crate::queue::{self, Ended, Joined, Order, Place, Precedence, RequestSeat, Wants};
use crate::receipt::Receipt;
use crate::respond::{OwnRules, Settle, spread};

/// A rate limit as a layer has it: the backend of `L`, which is an algorithm or a limiter of a store.
pub struct Rate<L: IntoBackend> {
    state: Arc<State<L::Backend>>,
    pub(crate) on_store_error: OnStoreError,
    pub(super) line: LineOptions,
    /// How many percent longer than it has to a denied client is told to wait at most.
    pub(super) jitter: u8,
}

/// How requests wait. What is not set here is as the algorithm says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineOptions {
    pub(super) queue: Option<u32>,
    /// In nanoseconds.
    pub(super) max_wait: Option<NonZero<u64>>,
    pub(super) order: Order,
    /// Which requests may wait; all if not set.
    pub(super) least: Option<Priority>,
}

type Decided = Result<Decision, StoreError>;

/// What a request has while it waits.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub enum RateWait<F> {
    Asks(Asks<F>),
    /// In the line of its key.
    InLine(InLine),
    /// The backend has booked its turn. Boxed, as few backends do.
    Booked(Box<Booked>),
}

/// The backend's decision is pending.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Asks<F> {
    /// Boxed, because it would be most of the response future, even if the backend is never pending.
    future: Box<F>,
    ask: Ask,
    /// Until when its client will wait.
    until: Option<Tick>,
}

#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct InLine {
    line_id: u64,
    place: Place,
    /// As it was expected when the request joined.
    wait: Duration,
    ask: Ask,
}

#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Booked {
    until: MonotonicSleep,
    /// If its figures are read.
    decision: Option<CompactDecision>,
    ticket: Ticket,
    keep: bool,
}

impl<L: IntoBackend> Rate<L> {
    pub(crate) fn new(backend: L::Backend) -> Self {
        Self {
            state: Arc::new(State::new(backend)),
            on_store_error: OnStoreError::default(),
            line: LineOptions::default(),
            jitter: 0,
        }
    }

    /// Whether requests wait in a line of this process.
    pub(super) fn has_line(&self) -> bool {
        L::decides_at_once(self.backend()) && self.queues()
    }

    pub(super) fn can_have_line(&self) -> bool {
        L::decides_at_once(self.backend())
    }

    fn backend(&self) -> &L::Backend {
        &self.state.backend
    }

    /// How many requests of a key may wait, and how long.
    fn queue_of<K>(&self, key: &K) -> (u64, Duration)
    where
        L::Backend: Backend<K>,
    {
        let LineOptions {
            queue, max_wait, ..
        } = self.line;
        let set = max_wait.map(|ns| Duration::from_nanos(ns.get()));
        let (most, longest) = match queue {
            Some(most) => (most.into(), Duration::MAX),
            None => self.backend().queue_of(key),
        };
        (most, set.unwrap_or(longest))
    }

    fn may_wait(&self, ask: Ask) -> bool {
        self.line.least.is_none_or(|least| ask.priority >= least)
    }

    /// Makes the time longer that a denied client is told.
    fn spread(&self, decision: &mut Decision) {
        if let (1.., Some(wait)) = (self.jitter, decision.retry_after) {
            let number = self.state.spread.fetch_add(1, Ordering::Relaxed);
            decision.retry_after = Some(spread(wait, u32::from(self.jitter), number));
        }
    }

    /// Counts a request that goes on, and keeps what it has taken if that is needed.
    fn pass(ask: Ask, decision: &Decision, waited: bool) -> Passed<Ticket> {
        let ticket = Ticket {
            cost: ask.cost,
            receipt: (!decision.is_denied()).then(|| decision.receipt()),
        };
        let is_stated = ask.figures && !decision.is_unlimited();
        Passed {
            ticket: ask.keep.then_some(ticket),
            decision: is_stated.then(|| CompactDecision::new(decision)),
            waited,
            decided: true,
        }
    }

    #[cold]
    fn deny<K>(&self, mut decision: Decision) -> RateLimited
    where
        L::Backend: Backend<K>,
    {
        self.spread(&mut decision);
        self.state.record_denied(&decision, false);
        let quotas = || self.backend().quotas();
        self.state.denial_error(&quotas, decision)
    }

    /// Denies a request that cannot wait, or not for so long.
    fn deny_waiting<K>(&self, key: &K, ask: Ask, retry_after: Option<Duration>) -> RateLimited
    where
        L::Backend: Backend<K>,
    {
        let looked = self.backend().current_decision(key, ask.cost);
        let mut denied = looked.unwrap_or_else(|| Decision::new(Verdict::Deny, 0, 0, None, 0));
        (denied.verdict, denied.retry_after) = (Verdict::Deny, retry_after);
        self.deny::<K>(denied)
    }

    fn record_waiting(&self, decision: &Decision, wait: Duration) {
        self.state.record_waited(decision, false);
        self.state.signals().record_queue_wait(wait);
    }

    /// Lets a request go on, join the line or be denied, if it can wait in a line. `None` if the backend
    /// has to be asked.
    fn enter_line<K>(
        &self,
        key: &K,
        ask: Ask,
        may_wait: &mut MayWait<'_>,
    ) -> Option<Entry<Ticket, RateWait<<L::Backend as Backend<K>>::Future>>>
    where
        K: Hash + Clone + Send + 'static,
        L::Backend: Backend<K>,
    {
        let (most, longest) = self.queue_of(key);
        let lines = &self.state.lines;
        if ask.shadow || (most == 0 && lines.waiting() == 0) {
            return None;
        }
        let now = queue::now();
        let is_free = ask.cost == 0;
        if is_free || lines.waiting() == 0 {
            let decision = self.backend().take_turn(key, ask.cost, now)?;
            if !decision.is_denied() {
                let _ = self.state.record_admitted();
                return Some(Ok(Has::Passed(Self::pass(ask, &decision, false))));
            }
            if decision.retry_after.is_none() {
                return Some(Err(self.deny::<K>(decision)));
            }
        }
        let waits = most > 0 && self.may_wait(ask) && may_wait.seat.try_acquire();
        let until = now.plus(longest);
        let client = (may_wait.until)();
        let wants = Wants {
            cost: ask.cost,
            place: Precedence {
                priority: ask.priority,
                order: self.line.order,
            },
            most: if waits { most } else { 0 },
            until: client.map_or(until, |client| client.min(until)),
        };
        let limit = LimitOf::new(key, &self.state.backend);
        let line_id = self.state.line_id(key);
        Some(match lines.join(line_id, &limit, wants) {
            Joined::Taken(decision) => {
                let _ = self.state.record_admitted();
                Ok(Has::Passed(Self::pass(ask, &decision, false)))
            }
            Joined::Waits(place, wait) => {
                let looked = self.backend().current_decision(key, 0);
                let decision = looked.map(|decision| Decision {
                    verdict: Verdict::Wait(wait),
                    ..decision
                });
                decision
                    .iter()
                    .for_each(|one| self.record_waiting(one, wait));
                Ok(Has::Wait(RateWait::InLine(InLine {
                    line_id,
                    place,
                    wait,
                    ask,
                })))
            }
            Joined::Denied(retry_after) => Err(self.deny_waiting(key, ask, retry_after)),
        })
    }

    /// Does what the backend has decided. `until` is that of the client.
    fn handle<K>(
        &self,
        key: &K,
        ask: Ask,
        decided: Decided,
        MayWait { seat, until }: MayWait<'_>,
    ) -> Entry<Ticket, RateWait<<L::Backend as Backend<K>>::Future>>
    where
        L::Backend: Backend<K>,
    {
        let state = &self.state;
        state.report_losses(|| self.backend().losses());
        let mut decision = match decided {
            Ok(decision) => decision,
            Err(error) => return self.fail(ask, error),
        };
        let wait = match decision.verdict {
            Verdict::Admit => {
                let _ = state.record_admitted();
                return Ok(Has::Passed(Self::pass(ask, &decision, false)));
            }
            Verdict::Wait(_) if ask.shadow => {
                state.record_waited(&decision, true);
                return Ok(Has::Passed(Self::pass(ask, &decision, false)));
            }
            Verdict::Deny if ask.shadow => {
                state.record_denied(&decision, true);
                self.spread(&mut decision);
                return Ok(Has::Passed(Self::pass(ask, &decision, false)));
            }
            Verdict::Deny => return Err(self.deny::<K>(decision)),
            Verdict::Wait(wait) => wait,
        };
        let turn = queue::now().plus(wait);
        let over = until().map_or(Duration::ZERO, |until| turn.since(until));
        let retry_after = match over {
            Duration::ZERO if seat.try_acquire() => None,
            Duration::ZERO => Some(wait),
            over => Some(over),
        };
        let ticket = Ticket {
            cost: ask.cost,
            receipt: Some(decision.receipt()),
        };
        if retry_after.is_some() {
            self.give_back(key, ticket, Op::Cancel);
            (decision.verdict, decision.retry_after) = (Verdict::Deny, retry_after);
            return Err(self.deny::<K>(decision));
        }
        self.record_waiting(&decision, wait);
        state.lines.count_booked(true);
        Ok(Has::Wait(RateWait::Booked(Box::new(Booked {
            until: MonotonicClock.sleep_until(turn),
            decision: ask.figures.then(|| CompactDecision::new(&decision)),
            ticket,
            keep: ask.keep,
        }))))
    }

    #[cold]
    fn fail<W>(&self, ask: Ask, error: StoreError) -> Entry<Ticket, W> {
        self.state.record_store_error(&error);
        let allow = self.on_store_error == OnStoreError::Allow && error.is_transient();
        if allow || ask.shadow {
            Ok(Has::Passed(Passed::in_outage()))
        } else {
            Err(RateLimited::unavailable(error))
        }
    }

    /// Gives back what is taken, without awaiting it.
    fn give_back<K>(&self, key: &K, ticket: Ticket, how: fn(u64, Receipt) -> Op)
    where
        L::Backend: Backend<K>,
    {
        if let Some(receipt) = ticket.receipt.filter(|_| ticket.cost > 0) {
            self.backend().detach(key, how(ticket.cost, receipt));
        }
    }

    /// Lets the requests of a key that wait ask again: something was given back.
    fn tell<K: Hash>(&self, key: &K)
    where
        L::Backend: Backend<K>,
    {
        if self.state.lines.waiting() > 0 {
            self.state.lines.tell(self.state.line_id(key));
        }
    }

    /// Asks for a ticket, whether the response is needed or not.
    pub(super) fn enter_to_keep<K>(
        &self,
        key: &K,
        ask: Ask,
        may_wait: MayWait<'_>,
    ) -> Entry<Ticket, RateWait<<L::Backend as Backend<K>>::Future>>
    where
        K: Hash + Clone + Send + 'static,
        L::Backend: Backend<K>,
    {
        let ask = Ask { keep: true, ..ask };
        self.enter(key, ask, (), may_wait)
    }

    /// Settles a cost without awaiting it.
    pub(super) fn settle_unawaited<K: Hash>(&self, key: &K, ticket: Ticket, settle: Settle)
    where
        L::Backend: Backend<K>,
    {
        if let Some(op) = ticket.settled_by(settle) {
            self.backend().detach(key, op);
            self.tell(key);
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
        let own = || L::queues(&self.state.backend);
        self.line.queue.map_or_else(own, |most| most > 0)
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        rename(&mut self.state, name, number);
    }
}

impl<K, L> Gate<K> for Rate<L>
where
    K: Hash + Clone + Send + 'static,
    L: IntoBackend<Backend: Backend<K>>,
{
    type Ticket = Ticket;
    type Wait = RateWait<<L::Backend as Backend<K>>::Future>;
    type Settling = <L::Backend as Backend<K>>::Future;
    type Begun = ();

    fn look(&self, key: &K, ask: Ask) -> Look {
        let Some(looked) = self.backend().current_decision(key, ask.cost) else {
            return Look::Unknown;
        };
        let may_wait = || self.queue_of(key).0 > 0 && self.may_wait(ask);
        match looked.verdict {
            Verdict::Admit if self.state.lines.waiting() == 0 || ask.cost == 0 => Look::Passes,
            Verdict::Deny if looked.retry_after.is_none() || !may_wait() => Look::Denies,
            _ => Look::Waits,
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "what was decided on an admitted request is not written to memory"
    )]
    #[inline(always)]
    fn begin(&self, key: &K, ask: Ask) -> Result<Option<Ticket>, ()> {
        let decides = ask.figures || ask.keep || self.state.lines.waiting() > 0;
        if decides || !self.backend().try_admit(key, ask.cost) {
            return Err(());
        }
        self.state.report_losses(|| self.backend().losses());
        Ok(None)
    }

    #[inline(never)]
    fn enter(
        &self,
        key: &K,
        ask: Ask,
        (): (),
        mut may_wait: MayWait<'_>,
    ) -> Entry<Ticket, Self::Wait> {
        if let Some(entered) = self.enter_line(key, ask, &mut may_wait) {
            self.state.report_losses(|| self.backend().losses());
            return entered;
        }
        let mut deciding = self.backend().decide(key, ask.cost);
        match poll_once(&mut deciding) {
            Poll::Ready(decided) => self.handle(key, ask, decided, may_wait),
            Poll::Pending => Ok(Has::Wait(RateWait::Asks(Asks {
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
    ) -> Poll<Result<Passed<Ticket>, RateLimited>> {
        if let RateWait::Asks(asks) = wait {
            let decided = ready!(Pin::new(&mut asks.future).poll(cx));
            let until = asks.until;
            let may_wait = MayWait {
                seat: &mut *seat,
                until: &|| until,
            };
            match self.handle(key, asks.ask, decided, may_wait)? {
                Has::Passed(passed) => return Poll::Ready(Ok(passed)),
                Has::Wait(booked) => *wait = booked,
            }
        }
        Poll::Ready(match wait {
            RateWait::InLine(own) => {
                let ended = self.state.lines.poll(own.line_id, own.place, cx.waker());
                self.end(key, own, ready!(ended))
            }
            RateWait::Booked(booked) => {
                ready!(Pin::new(&mut booked.until).poll(cx));
                self.state.lines.count_booked(false);
                Ok(Passed {
                    ticket: booked.keep.then_some(booked.ticket),
                    decision: booked.decision,
                    waited: true,
                    decided: true,
                })
            }
            RateWait::Asks(_) => return Poll::Pending,
        })
    }

    fn leave(&self, key: &K, has: Has<Self::Wait, Ticket>) {
        match has {
            Has::Wait(RateWait::InLine(own)) => {
                let taken = self.state.lines.leave(own.line_id, own.place);
                if let Some(decision) = taken {
                    let (cost, receipt) = (own.ask.cost, Some(decision.receipt()));
                    self.give_back(key, Ticket { cost, receipt }, Op::Refund);
                    self.tell(key);
                }
            }
            Has::Wait(RateWait::Booked(booked)) => {
                self.state.lines.count_booked(false);
                self.give_back(key, booked.ticket, Op::Cancel);
            }
            Has::Passed(Passed { ticket, .. }) => {
                if let Some(ticket) = ticket {
                    self.settle_unawaited(key, ticket, Settle::Refund);
                }
            }
            Has::Wait(RateWait::Asks(_)) => {}
        }
    }

    fn settle(
        &self,
        key: &K,
        ticket: &mut Ticket,
        settle: SettlePart<'_>,
    ) -> Option<Self::Settling> {
        let settling = self.backend().apply(key, ticket.settled_by(settle(None))?);
        self.tell(key);
        Some(settling)
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

impl<L: IntoBackend> Rate<L> {
    /// How the wait of a request in line has ended.
    fn end<K>(&self, key: &K, own: &InLine, ended: Ended) -> Result<Passed<Ticket>, RateLimited>
    where
        L::Backend: Backend<K>,
    {
        match ended {
            Ok(mut decision) => {
                let taken = Self::pass(own.ask, &decision, true);
                decision.verdict = Verdict::Wait(own.wait);
                Ok(Passed {
                    decision: taken.decision.map(|_| CompactDecision::new(&decision)),
                    ..taken
                })
            }
            Err(retry_after) => Err(self.deny_waiting(key, own.ask, retry_after)),
        }
    }
}

impl<K, Res, L> Exit<K, Res> for Rate<L>
where
    Self: Gate<K, Ticket = Ticket>,
    L: IntoBackend,
{
    type Response = Res;

    #[inline]
    fn exit<E>(_: Option<Ticket>, result: Result<Res, E>) -> Result<Res, E> {
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
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}
