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

use super::cost_at_end::Unsettled;
use super::gate::{
    Ask, Exit, Gate, Limiting, Look, MayWait, Passed, SettlePart, poll_once, rename,
};
use super::limit_of::LimitOf;
use super::options::{LineOptions, OnStoreError};
use super::preview::{Previewing, preview};
use super::rate_entry::{Booked, InLine, RateEntry, RateStage, Ticket};
use super::state::State;
use crate::backend::{Backend, IntoBackend, Op};
use crate::clock::{MonotonicClock, Tick, Timer, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::queue::{self, Joined, Precedence, Wants};
use crate::receipt::Receipt;
use crate::respond::{CostHandle, Event, OwnRules, Policies, Settle, spread};

/// A rate limit as a layer has it: the backend `L`, a [`Local`](crate::Local) or a limiter of a store.
pub struct Rate<L> {
    state: Arc<State<L>>,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) line: LineOptions,
    /// Whether the limit decides in this process.
    at_once: bool,
    /// Whether requests can book turns in it.
    queues: bool,
    /// How many percent longer than it has to a denied client is told to wait at most.
    pub(super) jitter: u8,
    /// What a request costs may be said while it is served.
    pub(super) shares_cost: bool,
}

type Decided = Result<Decision, StoreError>;

impl<L> Rate<L> {
    pub(crate) fn new<T: IntoBackend<Backend = L>>(backend: L) -> Self {
        let queues = T::queues(&backend);
        Self::of(T::decides_at_once(&backend), queues, backend)
    }

    pub(crate) fn of(at_once: bool, queues: bool, backend: L) -> Self {
        Self {
            at_once,
            queues,
            state: Arc::new(State::new(backend)),
            on_store_error: OnStoreError::default(),
            line: LineOptions::default(),
            jitter: 0,
            shares_cost: false,
        }
    }

    /// Whether requests wait in a line of this process.
    pub(super) fn has_line(&self) -> bool {
        self.at_once && self.line.queue > 0
    }

    pub(super) fn can_queue(&self) -> bool {
        self.at_once || self.queues
    }

    fn backend(&self) -> &L {
        &self.state.backend
    }

    /// Whether no request waits, and none may.
    #[inline]
    fn waits_nowhere(&self) -> bool {
        self.line.queue == 0 && self.state.lines.waiting() == 0
    }

    fn may_wait(&self, ask: Ask) -> bool {
        self.line.queue > 0 && self.line.least.is_none_or(|least| ask.priority >= least)
    }

    /// Asks a limit that does not decide in this process. A request that may wait books its turn.
    fn decide_now<K>(
        &self,
        key: &K,
        ask: Ask,
        until: Option<Tick>,
    ) -> Result<Decided, <L as Backend<K>>::Future>
    where
        L: Backend<K>,
    {
        if !self.may_wait(ask) {
            return self.backend().decide_now(key, ask.cost, |decided| decided);
        }
        let longest = self.line.longest();
        let left = until.map_or(longest, |until| until.since(queue::now()));
        let mut deciding = self.backend().apply(
            key,
            Op::Reserve {
                cost: ask.cost,
                queue: self.line.queue.into(),
                max_wait: longest.min(left),
            },
        );
        match poll_once(&mut deciding) {
            Poll::Ready(decided) => Ok(decided),
            Poll::Pending => Err(deciding),
        }
    }

    /// Makes the time longer that a denied client is told.
    fn spread(&self, decision: &mut Decision) {
        if let (1.., Some(wait)) = (self.jitter, decision.retry_after) {
            let number = self.state.spread.fetch_add(1, Ordering::Relaxed);
            decision.retry_after = Some(spread(wait, u32::from(self.jitter), number));
        }
    }

    /// Counts a request that goes on at once.
    fn admit<F>(
        &self,
        ask: Ask,
        decision: &Decision,
        entry: &mut RateStage<F>,
    ) -> Poll<Result<Passed, RateLimited>> {
        let sampled = self.state.record_admitted(ask.cost);
        let passed = Self::pass(ask, decision, entry);
        Poll::Ready(Ok(Passed { sampled, ..passed }))
    }

    /// Keeps what a request has taken that goes on, if that is needed.
    fn pass<F>(ask: Ask, decision: &Decision, entry: &mut RateStage<F>) -> Passed {
        let ticket = Ticket {
            cost: ask.cost,
            receipt: (!decision.is_denied()).then(|| decision.receipt()),
        };
        *entry = if ask.keep {
            RateStage::Has(ticket)
        } else {
            RateStage::Nothing
        };
        let is_stated = ask.figures && !decision.is_unlimited();
        Passed {
            decision: is_stated.then_some(*decision),
            ..Passed::AT_ONCE
        }
    }

    #[cold]
    fn deny<K>(&self, key: &K, mut decision: Decision) -> RateLimited
    where
        L: Backend<K>,
    {
        self.spread(&mut decision);
        let denied = self.state.denial_error(key, decision);
        self.state.record(Event::Denied(&denied), false);
        denied
    }

    /// Denies a request that cannot wait, or not for so long.
    fn deny_waiting<K>(&self, key: &K, ask: Ask, retry_after: Option<Duration>) -> RateLimited
    where
        L: Backend<K>,
    {
        let looked = self.backend().current_decision(key, ask.cost);
        let mut denied = looked.unwrap_or_else(|| Decision::new(Verdict::Deny, 0, 0, None, 0));
        (denied.verdict, denied.retry_after) = (Verdict::Deny, retry_after);
        self.deny(key, denied)
    }

    fn record_waiting(&self, wait: Duration) {
        let waits = Decision::new(Verdict::Wait(wait), 0, 0, None, 0);
        self.state.record(Event::Waits(&waits, Some(wait)), false);
    }

    /// Lets a request go on, join the line or be denied, if it can wait in a line. `None` if the backend
    /// has to be asked.
    fn enter_line<K>(
        &self,
        key: &K,
        ask: Ask,
        entry: &mut StageOf<K, L>,
        may_wait: &mut MayWait<'_>,
    ) -> Option<Poll<Result<Passed, RateLimited>>>
    where
        K: Hash + Clone + Send + 'static,
        L: Backend<K>,
    {
        let lines = &self.state.lines;
        if ask.shadow || !self.at_once {
            return None;
        }
        let now = queue::now();
        if ask.cost == 0 || lines.waiting() == 0 {
            let decision = self.backend().take_turn(key, ask.cost, now)?;
            if !decision.is_denied() {
                return Some(self.admit(ask, &decision, entry));
            }
            if decision.retry_after.is_none() {
                return Some(Poll::Ready(Err(self.deny(key, decision))));
            }
        }
        let waits = self.may_wait(ask) && may_wait.seat.try_acquire();
        let until = now.plus(self.line.longest());
        let wants = Wants {
            cost: ask.cost,
            place: Precedence {
                priority: ask.priority,
                order: self.line.order,
            },
            most: if waits { self.line.queue.into() } else { 0 },
            until: may_wait.until.map_or(until, |client| client.min(until)),
        };
        let limit = LimitOf::new(key, &self.state.backend);
        let line_id = self.state.line_id(key);
        Some(match lines.join(line_id, &limit, wants) {
            Joined::Taken(decision) => self.admit(ask, &decision, entry),
            Joined::Waits(place, wait) => {
                self.record_waiting(wait);
                *entry = RateStage::InLine(InLine {
                    place,
                    wait: nanos(wait),
                    cost: ask.cost,
                    keep: ask.keep,
                });
                Poll::Pending
            }
            Joined::Denied(retry_after) => {
                Poll::Ready(Err(self.deny_waiting(key, ask, retry_after)))
            }
        })
    }

    /// Does what the backend has decided. A request that waits for its turn is polled next.
    fn handle<K>(
        &self,
        key: &K,
        ask: Ask,
        decided: Decided,
        entry: &mut StageOf<K, L>,
        MayWait { seat, until }: &mut MayWait<'_>,
    ) -> Poll<Result<Passed, RateLimited>>
    where
        L: Backend<K>,
    {
        let state = &self.state;
        let mut decision = match decided {
            Ok(decision) => decision,
            Err(error) => return Poll::Ready(self.fail(ask, error)),
        };
        let wait = match decision.verdict {
            Verdict::Admit => return self.admit(ask, &decision, entry),
            Verdict::Wait(_) if ask.shadow => {
                state.record(Event::Waits(&decision, None), true);
                return Poll::Ready(Ok(Self::pass(ask, &decision, entry)));
            }
            Verdict::Deny if ask.shadow => {
                state.record(Event::Denied(&RateLimited::new(decision)), true);
                self.spread(&mut decision);
                return Poll::Ready(Ok(Self::pass(ask, &decision, entry)));
            }
            Verdict::Deny => return Poll::Ready(Err(self.deny(key, decision))),
            Verdict::Wait(wait) => wait,
        };
        let turn = queue::now().plus(wait);
        let over = until.map_or(Duration::ZERO, |until| turn.since(until));
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
            return Poll::Ready(Err(self.deny(key, decision)));
        }
        self.record_waiting(wait);
        state.lines.count_booked(true);
        *entry = RateStage::Booked(Box::new(Booked {
            until: MonotonicClock.sleep_until(turn),
            decision: ask.figures.then_some(decision),
            ticket,
            keep: ask.keep,
        }));
        Poll::Pending
    }

    #[cold]
    fn fail(&self, ask: Ask, error: StoreError) -> Result<Passed, RateLimited> {
        self.state.record(Event::StoreError(&error), false);
        let allow = self.on_store_error == OnStoreError::Allow && error.is_transient();
        if allow || ask.shadow {
            Ok(Passed::IN_OUTAGE)
        } else {
            Err(RateLimited::unavailable(error))
        }
    }

    /// Gives back what is taken, without awaiting it.
    fn give_back<K>(&self, key: &K, ticket: Ticket, how: fn(u64, Receipt) -> Op)
    where
        L: Backend<K>,
    {
        if let Some(receipt) = ticket.receipt.filter(|_| ticket.cost > 0) {
            self.backend().detach(key, how(ticket.cost, receipt));
        }
    }
}

impl<L: Send + Sync + 'static> Limiting for Rate<L> {
    type Limiter = L;

    const LAYER: &'static str = "RateLimitLayer";

    #[inline]
    fn state(&self) -> &Arc<State<L>> {
        &self.state
    }

    fn queues(&self) -> bool {
        self.line.queue > 0
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        rename(&mut self.state, name, number);
    }
}

impl<K, L> Gate<K> for Rate<L>
where
    K: Hash + Clone + Send + 'static,
    L: Backend<K>,
{
    type Entry = RateEntry<L::Future>;
    type Settling = <L as Backend<K>>::Future;

    const HOLDS: bool = false;

    fn look(&self, key: &K, ask: Ask) -> Look {
        let Some(looked) = self.backend().current_decision(key, ask.cost) else {
            return Look::Unknown;
        };
        match looked.verdict {
            Verdict::Admit if self.state.lines.waiting() == 0 || ask.cost == 0 => Look::Passes,
            Verdict::Deny if looked.retry_after.is_none() || !self.may_wait(ask) => Look::Denies,
            _ => Look::Waits,
        }
    }

    fn preview(&self, key: &K, ask: Ask) -> Vec<Previewing> {
        let waits = self.look(key, ask) == Look::Waits;
        let limit = (self.state.name(), ask.shadow, waits);
        vec![preview(limit, self.backend(), key, ask.cost)]
    }

    #[expect(
        clippy::inline_always,
        reason = "what was decided on an admitted request is not written to memory"
    )]
    #[inline(always)]
    fn poll_enter(
        &self,
        key: &K,
        ask: Ask,
        entry: &mut RateEntry<L::Future>,
        mut may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        if !matches!(entry.0, RateStage::New) || !self.waits_nowhere() {
            return self.poll_slowly(key, ask, &mut entry.0, may_wait, cx);
        }
        // Figures that are not read are not computed.
        let is_read = ask.figures || ask.keep;
        let read = |decided: Decided| match decided {
            Ok(decision) if decision.is_admitted() && !is_read => None,
            decided => Some(decided),
        };
        let decided = match self.backend().decide_now(key, ask.cost, read) {
            Ok(None) => {
                let sampled = self.state.record_admitted(ask.cost);
                self.state.report_losses(|| self.backend().losses());
                let passed = Passed::AT_ONCE;
                return Poll::Ready(Ok(Passed { sampled, ..passed }));
            }
            Ok(Some(decided)) => Ok(decided),
            Err(deciding) => Err(deciding),
        };
        self.go_on(key, ask, decided, &mut entry.0, &mut may_wait)
    }

    fn leave(&self, key: &K, entry: &mut RateEntry<L::Future>) {
        match mem::replace(&mut entry.0, RateStage::Nothing) {
            RateStage::InLine(own) => {
                let taken = self.state.lines.leave(self.state.line_id(key), own.place);
                if taken.is_some() {
                    let (cost, receipt) = (own.cost, taken);
                    self.give_back(key, Ticket { cost, receipt }, Op::Refund);
                    self.state.tell(key);
                }
            }
            RateStage::Booked(booked) => {
                self.state.lines.count_booked(false);
                self.give_back(key, booked.ticket, Op::Cancel);
            }
            RateStage::Has(ticket) => self.state.settle_unawaited(key, ticket, Settle::Refund),
            RateStage::Shares(cost) => cost.settle(Settle::Refund),
            RateStage::New | RateStage::Asks(..) | RateStage::Nothing => {}
        }
    }

    fn settle(
        &self,
        key: &K,
        entry: &mut RateEntry<L::Future>,
        settle: SettlePart<'_>,
    ) -> Option<Self::Settling> {
        let ticket = match &entry.0 {
            RateStage::Has(ticket) => ticket,
            RateStage::Shares(cost) => {
                cost.settle(settle(None));
                return None;
            }
            _ => return None,
        };
        let settling = self.backend().apply(key, ticket.settled_by(settle(None))?);
        self.state.tell(key);
        Some(settling)
    }

    fn cost_handle(&self, key: &K, entry: &mut RateEntry<L::Future>) -> Option<CostHandle> {
        if !self.shares_cost {
            return None;
        }
        let cost = Unsettled::share(&self.state, key.clone(), entry.0.ticket());
        entry.0 = RateStage::Shares(cost.clone());
        Some(cost)
    }

    fn policies(&self, key: &K, _: &mut Decision) -> (Arc<Policies>, OwnRules<'_>) {
        (self.state.policies_of(key), None)
    }
}

type StageOf<K, L> = RateStage<<L as Backend<K>>::Future>;

impl<L> Rate<L> {
    /// Asks the limit, or goes on waiting for it.
    fn poll_slowly<K>(
        &self,
        key: &K,
        ask: Ask,
        entry: &mut StageOf<K, L>,
        mut may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>>
    where
        K: Hash + Clone + Send + 'static,
        L: Backend<K>,
    {
        if let RateStage::New = entry {
            let in_line = self.enter_line(key, ask, entry, &mut may_wait);
            let entered = in_line.unwrap_or_else(|| {
                let decided = self.decide_now(key, ask, may_wait.until);
                self.go_on(key, ask, decided, entry, &mut may_wait)
            });
            if entered.is_ready() {
                self.state.report_losses(|| self.backend().losses());
                return entered;
            }
        }
        let Some(cx) = cx else {
            return Poll::Pending;
        };
        if let RateStage::Asks(deciding, ask) = entry {
            let (decided, ask) = (ready!(Pin::new(deciding).poll(cx)), *ask);
            *entry = RateStage::Nothing;
            self.state.report_losses(|| self.backend().losses());
            let handled = self.handle(key, ask, decided, entry, &mut may_wait);
            if handled.is_ready() {
                return handled;
            }
        }
        match entry {
            RateStage::InLine(own) => {
                let line_id = self.state.line_id(key);
                let ended = ready!(self.state.lines.poll(line_id, own.place, cx.waker()));
                let (wait, keep) = (Duration::from_nanos(own.wait), own.keep);
                match ended {
                    Ok(receipt) => {
                        let figures = ask.figures.then(|| self.backend().current_decision(key, 0));
                        let unlimited = || Decision::new(Verdict::Admit, u64::MAX, 0, None, 0);
                        let mut decision = figures.flatten().unwrap_or_else(unlimited);
                        decision.verdict = Verdict::Wait(wait);
                        decision.set_receipt(receipt);
                        let passed = Self::pass(Ask { keep, ..ask }, &decision, entry);
                        let waited = true;
                        Poll::Ready(Ok(Passed { waited, ..passed }))
                    }
                    Err(retry_after) => {
                        *entry = RateStage::Nothing;
                        Poll::Ready(Err(self.deny_waiting(key, ask, retry_after)))
                    }
                }
            }
            RateStage::Booked(booked) => {
                ready!(Pin::new(&mut booked.until).poll(cx));
                self.state.lines.count_booked(false);
                let (decision, ticket, keep) = (booked.decision, booked.ticket, booked.keep);
                let has = keep.then_some(RateStage::Has(ticket));
                *entry = has.unwrap_or(RateStage::Nothing);
                let (waited, passed) = (true, Passed::AT_ONCE);
                Poll::Ready(Ok(Passed {
                    decision,
                    waited,
                    ..passed
                }))
            }
            _ => Poll::Ready(Ok(Passed::AT_ONCE)),
        }
    }

    /// Does what the backend has decided on a request that it has not admitted at once.
    fn go_on<K>(
        &self,
        key: &K,
        ask: Ask,
        decided: Result<Decided, <L as Backend<K>>::Future>,
        entry: &mut StageOf<K, L>,
        may_wait: &mut MayWait<'_>,
    ) -> Poll<Result<Passed, RateLimited>>
    where
        K: Hash + Clone + Send + 'static,
        L: Backend<K>,
    {
        match decided {
            Ok(decided) => {
                self.state.report_losses(|| self.backend().losses());
                self.handle(key, ask, decided, entry, may_wait)
            }
            Err(deciding) => {
                *entry = RateStage::Asks(Box::new(deciding), ask);
                Poll::Pending
            }
        }
    }
}

impl<K, Res, L> Exit<K, Res> for Rate<L>
where
    Self: Gate<K>,
    L: Backend<K>,
{
    type Response = Res;

    #[inline]
    fn exit<E>(_: Self::Entry, result: Result<Res, E>) -> Result<Res, E> {
        result
    }
}

/// Manual impl: derive would require `L: Clone`.
impl<L> Clone for Rate<L> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            ..*self
        }
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<L> fmt::Debug for Rate<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rate")
            .field("backend", &format_args!("{}", std::any::type_name::<L>()))
            .field("on_store_error", &self.on_store_error)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}
