//! The gate of a rate limit: a request asks, takes its cost or waits.

use std::{
    future::Future,
    hash::Hash,
    mem,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use super::cost_at_end::Unsettled;
use super::gate::{Ask, AtGate, Enter, Entering, Exit, Gate, Look, Progress, SettlePart, Told};
use super::limit_of::LimitOf;
use super::options::OnStoreError;
use super::rate::Rate;
use super::ticket::Ticket;
use crate::backend::{Backend, Op};
use crate::clock::{MonotonicClock, Sleep, Timer};
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::queue::{self, Joined, Place};
use crate::respond::{CostHandle, Event, Settle, spread};

/// What a request has of a rate limit: nothing yet, a place in line, or what it has taken.
#[derive(Debug)]
pub struct RateEntry<F>(Stage<F>);

#[derive(Debug)]
enum Stage<F> {
    /// It has not asked.
    New,
    Has(Ticket),
    /// In the line of its key, with its cost and the wait that was expected when it joined.
    InLine(Place, u64, Duration),
    /// Boxed: it would be most of the response future, and few requests need it.
    Rare(Box<Rare<F>>),
    /// It has nothing that is needed.
    Nothing,
}

#[derive(Debug)]
enum Rare<F> {
    /// The decision is pending.
    Asks(F),
    /// The backend has booked its turn. The decision is there if its figures are read.
    Booked(Sleep, Ticket, Option<Decision>),
    /// Its cost may be said while it is served.
    Shares(CostHandle),
}

/// Manual impl: derive would require `F: Default`.
impl<F> Default for RateEntry<F> {
    #[inline]
    fn default() -> Self {
        Self(Stage::New)
    }
}

impl<F> Stage<F> {
    fn rare(rare: Rare<F>) -> Self {
        Self::Rare(Box::new(rare))
    }
}

/// What a gate says about a request.
type Entered = Poll<Result<(), RateLimited>>;

type Decided = Result<Decision, StoreError>;
type StageOf<K, L> = Stage<<L as Backend<K>>::Future>;

/// A request at its limit.
struct AtRate<'a, K, L: Backend<K>> {
    rate: &'a Rate<L>,
    key: &'a K,
    stage: &'a mut StageOf<K, L>,
}

impl<K: Hash + Clone + Send + 'static, L: Backend<K>> AtRate<'_, K, L> {
    /// The same request. What is borrowed by a call is written to memory, so each call has a copy.
    #[inline]
    fn again(&mut self) -> AtRate<'_, K, L> {
        AtRate {
            rate: self.rate,
            key: self.key,
            stage: self.stage,
        }
    }

    /// Asks a limit that requests wait for, or may wait for.
    fn enter(&mut self, entering: &mut Entering<'_>) -> Entered {
        let ask = entering.ask;
        if !ask.shadow {
            if let Some(entered) = self.enter_line(entering) {
                return entered;
            }
        }
        let backend: &L = &self.rate.state.backend;
        if !self.rate.may_wait(ask) {
            let decided = backend.decide_now(self.key, ask.weight.cost, |decided| decided);
            return self.go_on(decided, entering);
        }
        // It books its turn.
        let longest = self.rate.line.longest();
        let left = entering.until.since(queue::now());
        let op = Op::Reserve {
            cost: ask.weight.cost,
            queue: self.rate.line.queue.into(),
            max_wait: longest.min(left),
        };
        let mut deciding = backend.apply(self.key, op);
        let decided = match Pin::new(&mut deciding).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => Ok(decided),
            Poll::Pending => Err(deciding),
        };
        self.go_on(decided, entering)
    }

    /// Takes the cost, joins the line or is denied. `None` if the limit counts denials, which a line would hide.
    fn enter_line(&mut self, entering: &mut Entering<'_>) -> Option<Entered> {
        let (Rate { state, line, .. }, ask) = (self.rate, entering.ask);
        if ask.weight.cost == 0 || state.lines.waiting() == 0 {
            let taken =
                state
                    .backend
                    .take_turn(self.key, ask.weight.cost, queue::now(), Duration::ZERO);
            let decision = taken?;
            if !decision.is_denied() {
                return Some(self.admit(&decision, entering));
            }
            if decision.retry_after.is_none() {
                return Some(self.deny(decision));
            }
        }
        let waits = self.rate.may_wait(ask) && entering.seat.try_acquire();
        let longest = line.max_wait.map(|_| queue::now().plus(line.longest()));
        let until = longest.map_or(entering.until, |longest| longest.min(entering.until));
        let most = if waits { line.queue.into() } else { 0 };
        let of_key = || LimitOf {
            key: self.key.clone(),
            backend: Arc::clone(&state.backend),
        };
        let (line_id, lines) = (state.line_id(self.key), &state.lines);
        let joined = lines.join(line_id, of_key, ask.weight, line.order, most, until);
        Some(match joined {
            Joined::Taken(decision) => self.admit(&decision, entering),
            Joined::Waits(queued, wait) => {
                state.record(Event::Waits(Some(wait)), false);
                *self.stage = Stage::InLine(queued, ask.weight.cost, wait);
                Poll::Pending
            }
            Joined::Denied(retry_after) => self.deny_waiting(ask, retry_after),
        })
    }

    /// Does what the backend has decided, if it has.
    fn go_on(
        &mut self,
        decided: Result<Decided, L::Future>,
        entering: &mut Entering<'_>,
    ) -> Entered {
        let (state, ask) = (&self.rate.state, entering.ask);
        let mut decision = match decided {
            Ok(Ok(decision)) => decision,
            Ok(Err(error)) => return self.fail(ask, error),
            Err(deciding) => {
                *self.stage = Stage::rare(Rare::Asks(deciding));
                return Poll::Pending;
            }
        };
        let wait = match decision.verdict {
            Verdict::Admit => return self.admit(&decision, entering),
            _ if ask.shadow => {
                let took = !decision.is_denied();
                // In its line it would wait, unless it was a turn of a bucket that would come too late: that can be
                // booked before it has come.
                let in_line = self.rate.at_once && self.rate.may_wait(ask);
                let left = entering.until.since(queue::now());
                let longest = self.rate.line.longest().min(left);
                let looked = state.backend.current_decision(self.key, ask.weight.cost);
                let wait = looked.filter(|_| in_line).and_then(|looked| {
                    let books = looked.policy == decision.policy;
                    let is_late = books && looked.retry_after > decision.retry_after;
                    looked
                        .retry_after
                        .filter(|wait| !is_late && *wait <= longest)
                });
                decision.verdict = wait.map_or(decision.verdict, Verdict::Wait);
                let (waits, denied) = (decision.wait(), RateLimited::new(decision));
                let event = waits.map_or(Event::Denied(&denied), |_| Event::Waits(waits));
                state.record(event, true);
                return self.pass(&decision, took, entering);
            }
            Verdict::Deny => return self.deny(decision),
            Verdict::Wait(wait) => wait,
        };
        let turn = queue::now().plus(wait);
        let over = turn.since(entering.until);
        let ticket = Ticket {
            cost: ask.weight.cost,
            receipt: Some(decision.receipt()),
        };
        if !over.is_zero() || !entering.seat.try_acquire() {
            state.cancel(self.key, ticket);
            let retry_after = if over.is_zero() { wait } else { over };
            (decision.verdict, decision.retry_after) = (Verdict::Deny, Some(retry_after));
            return self.deny(decision);
        }
        state.record(Event::Waits(Some(wait)), false);
        state.lines.count_booked(true);
        let figures = ask.figures.then_some(decision);
        let until = MonotonicClock.sleep_until(turn);
        *self.stage = Stage::rare(Rare::Booked(until, ticket, figures));
        Poll::Pending
    }

    /// Goes on waiting for the limit.
    fn poll(&mut self, entering: &mut Entering<'_>, cx: &mut Context<'_>) -> Entered {
        let (state, ask) = (&self.rate.state, entering.ask);
        if let Stage::InLine(queued, _, wait) = self.stage {
            let line_id = state.line_id(self.key);
            let ended = ready!(state.lines.poll(line_id, *queued, cx.waker()));
            let verdict = Verdict::Wait(*wait);
            *self.stage = Stage::Nothing;
            let receipt = match ended {
                Ok(receipt) => receipt,
                Err(retry_after) => return self.deny_waiting(ask, retry_after),
            };
            let figures = ask.figures;
            let figures = figures.then(|| state.backend.current_decision(self.key, 0));
            let unlimited = || Decision::new(verdict, u64::MAX, 0, None, 0);
            let mut decision = figures.flatten().unwrap_or_else(unlimited);
            decision.verdict = verdict;
            return self.pass(&decision.with_receipt(receipt), true, entering);
        }
        let Stage::Rare(rare) = &mut *self.stage else {
            return Poll::Ready(Ok(()));
        };
        match &mut **rare {
            Rare::Asks(deciding) => {
                let decided = ready!(Pin::new(deciding).poll(cx));
                *self.stage = Stage::Nothing;
                let entered = self.go_on(Ok(decided), entering);
                if entered.is_pending() {
                    return self.poll(entering, cx);
                }
                entered
            }
            Rare::Booked(until, ticket, figures) => {
                ready!(Pin::new(until).poll(cx));
                state.lines.count_booked(false);
                *entering.figures = *figures;
                let has = ask.keep.then_some(Stage::Has(*ticket));
                *self.stage = has.unwrap_or(Stage::Nothing);
                Poll::Ready(Ok(()))
            }
            Rare::Shares(_) => Poll::Ready(Ok(())),
        }
    }

    /// Counts a request that goes on at once.
    fn admit(&mut self, decision: &Decision, entering: &mut Entering<'_>) -> Entered {
        self.rate.state.record(Event::Admitted, false);
        self.pass(decision, true, entering)
    }

    /// Keeps what a request has taken that goes on, if that is needed.
    fn pass(&mut self, decision: &Decision, took: bool, entering: &mut Entering<'_>) -> Entered {
        let ask = entering.ask;
        if ask.keep {
            *self.stage = Stage::Has(Ticket {
                cost: ask.weight.cost,
                receipt: took.then(|| decision.receipt()),
            });
        }
        if ask.figures && !decision.is_unlimited() {
            *entering.figures = Some(*decision);
        }
        Poll::Ready(Ok(()))
    }

    #[cold]
    fn deny(&self, mut decision: Decision) -> Entered {
        let jitter = self.rate.jitter;
        if let Some(wait) = decision.retry_after.as_mut().filter(|_| jitter > 0) {
            let number = self.rate.state.spread.fetch_add(1, Ordering::Relaxed);
            *wait = spread(*wait, jitter, number);
        }
        let denied = self.rate.state.denial_error(self.key, decision);
        self.rate.state.record(Event::Denied(&denied), false);
        Poll::Ready(Err(denied))
    }

    /// Denies a request that cannot wait, or not for so long.
    fn deny_waiting(&self, ask: Ask, retry_after: Option<Duration>) -> Entered {
        let backend = &self.rate.state.backend;
        let looked = backend.current_decision(self.key, ask.weight.cost);
        let mut denied = looked.unwrap_or_else(|| Decision::new(Verdict::Deny, 0, 0, None, 0));
        (denied.verdict, denied.retry_after) = (Verdict::Deny, retry_after);
        self.deny(denied)
    }

    #[cold]
    fn fail(&self, ask: Ask, error: StoreError) -> Entered {
        self.rate.state.record(Event::StoreError(&error), false);
        let allow = self.rate.on_store_error == OnStoreError::Allow && error.is_transient();
        Poll::Ready(if allow || ask.shadow {
            Ok(())
        } else {
            Err(RateLimited::unavailable(error))
        })
    }
}

impl<K, L> Gate<K> for Rate<L>
where
    K: Hash + Clone + Send + 'static,
    L: Backend<K>,
{
    type Entry = RateEntry<L::Future>;

    fn leave(&self, key: &K, entry: &mut Self::Entry) {
        self.at(key, entry).leave();
    }
}

impl<K, L> Enter<K> for Rate<L>
where
    K: Hash + Clone + Send + 'static,
    L: Backend<K>,
{
    const HOLDS: bool = false;

    #[inline]
    fn at<'a>(&'a self, key: &'a K, entry: &'a mut RateEntry<L::Future>) -> impl AtGate + 'a {
        let (rate, stage) = (self, &mut entry.0);
        AtRate { rate, key, stage }
    }
}

impl<K, L> AtGate for AtRate<'_, K, L>
where
    K: Hash + Clone + Send + 'static,
    L: Backend<K>,
{
    fn look(&mut self, ask: Ask) -> Look {
        let state = &self.rate.state;
        let Some(looked) = state.backend.current_decision(self.key, ask.weight.cost) else {
            return Look::Unknown;
        };
        match looked.verdict {
            Verdict::Admit if state.lines.waiting() == 0 || ask.weight.cost == 0 => Look::Passes,
            Verdict::Deny if looked.retry_after.is_none() || !self.rate.may_wait(ask) => {
                Look::Denies
            }
            _ => Look::Waits,
        }
    }

    fn progress(&mut self) -> Progress {
        match self.stage {
            Stage::New => Progress::New,
            Stage::InLine(..) => Progress::Waits,
            Stage::Rare(rare) if !matches!(**rare, Rare::Shares(_)) => Progress::Waits,
            _ => Progress::Passed,
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "without it an admitted request of a layer takes 756 instructions, not 670, and 40 ns, not 35"
    )]
    #[inline(always)]
    fn poll_enter(&mut self, mut entering: Entering<'_>, cx: Option<&mut Context<'_>>) -> Entered {
        let ask = entering.ask;
        if let Stage::New = self.stage {
            *self.stage = Stage::Nothing;
            let state = &self.rate.state;
            // Without a line, unless a clone of the layer has one.
            let entered = if self.rate.line.queue == 0 && state.lines.waiting() == 0 {
                // Figures that are not read are not computed.
                let is_read = ask.figures || ask.keep;
                let done = move |decided: Decided| match decided {
                    Ok(decision) if decision.is_admitted() && !is_read => None,
                    decided => Some(decided),
                };
                // That of the `Arc` would not be part of this function.
                let backend: &L = &state.backend;
                let decided = match backend.decide_now(self.key, ask.weight.cost, done) {
                    Ok(None) => {
                        state.record(Event::Admitted, false);
                        return Poll::Ready(Ok(()));
                    }
                    Ok(Some(decided)) => Ok(decided),
                    Err(deciding) => Err(deciding),
                };
                self.again().go_on(decided, &mut entering.with(ask))
            } else {
                self.again().enter(&mut entering.with(ask))
            };
            if entered.is_ready() {
                return entered;
            }
        }
        let mut entering = entering.with(ask);
        cx.map_or(Poll::Pending, |cx| self.again().poll(&mut entering, cx))
    }

    fn leave(&mut self) {
        let state = &self.rate.state;
        let rare = match mem::replace(self.stage, Stage::Nothing) {
            Stage::Has(ticket) => return state.settle(self.key, ticket, Settle::Refund),
            Stage::InLine(queued, cost, _) => {
                let receipt = state.lines.leave(state.line_id(self.key), queued);
                let ticket = Ticket { cost, receipt };
                return state.settle(self.key, ticket, Settle::Refund);
            }
            Stage::Rare(rare) => rare,
            Stage::New | Stage::Nothing => return,
        };
        match *rare {
            Rare::Asks(_) => {}
            Rare::Booked(_, ticket, _) => {
                state.lines.count_booked(false);
                state.cancel(self.key, ticket);
            }
            Rare::Shares(cost) => cost.settle(Settle::Refund),
        }
    }

    fn settle(&mut self, settle: SettlePart<'_>) {
        match &*self.stage {
            Stage::Has(ticket) => self
                .rate
                .state
                .settle(self.key, *ticket, settle(None, false)),
            Stage::Rare(rare) => {
                if let Rare::Shares(cost) = &**rare {
                    cost.settle(settle(None, true));
                }
            }
            _ => {}
        }
    }

    fn cost_handle(&mut self) -> Option<CostHandle> {
        if !self.rate.shares_cost {
            return None;
        }
        let ticket = match &*self.stage {
            Stage::Has(ticket) => Some(*ticket),
            _ => None,
        };
        let cost = Unsettled::share(&self.rate.state, self.key.clone(), ticket);
        *self.stage = Stage::rare(Rare::Shares(cost.clone()));
        Some(cost)
    }

    fn limits(&mut self) -> usize {
        self.rate.state.backend.limits().max(1)
    }

    fn policies(&mut self, decision: Decision, told: Told<'_>) {
        told(None, &self.rate.state.policies_of(self.key), &decision);
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
