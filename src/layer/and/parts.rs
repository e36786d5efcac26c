//! What two limits decide together.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use super::queue_part::{Part, QueuePart};
use crate::algorithm::merge;
use crate::backend::{Backend, Op};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::receipt::Receipt;

pub(super) type Decided = Result<Decision, StoreError>;

/// The two backends.
#[derive(Debug)]
pub(super) struct Parts<L1, L2> {
    pub(super) first: Arc<L1>,
    pub(super) second: Arc<L2>,
    pub(super) queue: Arc<QueuePart>,
}

/// The call of one limit.
pub(super) enum Call<F> {
    /// The request does not have the limit's key.
    Absent,
    /// It is called once the first limit admits.
    NotStarted,
    InFlight(F),
    Done(Decided),
}

/// The calls of both limits.
pub(super) struct Calls<F1, F2> {
    /// The cost that is to be taken from both or neither. `None` for other operations.
    take: Option<u64>,
    first: Call<F1>,
    second: Call<F2>,
}

impl<F: Future<Output = Decided> + Unpin> Call<F> {
    /// Ready when the limit has decided, or is not called.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::InFlight(future) = self {
            *self = Self::Done(ready!(Pin::new(future).poll(cx)));
        }
        Poll::Ready(())
    }

    const fn decided(&self) -> Option<&Decided> {
        match self {
            Self::Done(decided) => Some(decided),
            _ => None,
        }
    }
}

impl<L1, L2> Parts<L1, L2> {
    /// Takes `cost` from both limits, from the second one after the first.
    pub(super) fn take<A, B>(
        &self,
        keys: (Option<&A>, Option<&B>),
        cost: u64,
    ) -> Calls<L1::Future, L2::Future>
    where
        L1: Backend<A>,
        L2: Backend<B>,
    {
        let first = keys.0.map(|a| self.first.decide(a, cost));
        Calls {
            take: Some(cost),
            first: first.map_or(Call::Absent, Call::InFlight),
            second: keys.1.map_or(Call::Absent, |_| Call::NotStarted),
        }
    }

    /// Applies `op`, which takes nothing that could be denied, to both limits at the same time.
    pub(super) fn apply<A, B>(
        &self,
        keys: (Option<&A>, Option<&B>),
        op: Op,
    ) -> Calls<L1::Future, L2::Future>
    where
        L1: Backend<A>,
        L2: Backend<B>,
    {
        let (first, second) = Self::split_op::<A>(op);
        let first = keys.0.map(|a| self.first.apply(a, first));
        let second = keys.1.map(|b| self.second.apply(b, second));
        Calls {
            take: None,
            first: first.map_or(Call::Absent, Call::InFlight),
            second: second.map_or(Call::Absent, Call::InFlight),
        }
    }

    /// The decision of both limits.
    pub(super) fn poll<A, B>(
        &self,
        keys: (Option<&A>, Option<&B>),
        calls: &mut Calls<L1::Future, L2::Future>,
        cx: &mut Context<'_>,
    ) -> Poll<Decided>
    where
        L1: Backend<A>,
        L2: Backend<B>,
    {
        if let Some(cost) = calls.take {
            self.poll_take(keys, cost, calls, cx)
        } else {
            let polled = (calls.first.poll(cx), calls.second.poll(cx));
            if polled.0.is_pending() || polled.1.is_pending() {
                return Poll::Pending;
            }
            let first = calls.first.decided().cloned().transpose();
            let second = calls.second.decided().cloned().transpose();
            Poll::Ready(first.and_then(|first| Ok(self.peeked::<A>(first, second?))))
        }
    }

    fn poll_take<A, B>(
        &self,
        (a, b): (Option<&A>, Option<&B>),
        cost: u64,
        Calls { first, second, .. }: &mut Calls<L1::Future, L2::Future>,
        cx: &mut Context<'_>,
    ) -> Poll<Decided>
    where
        L1: Backend<A>,
        L2: Backend<B>,
    {
        if let (Call::InFlight(_), Some(a)) = (&*first, a) {
            ready!(first.poll(cx));
            self.check_queue(Part::First, first, |receipt| {
                self.first.detach(a, Op::Cancel(cost, receipt));
            });
        }
        match first.decided() {
            Some(Ok(denial)) if denial.is_denied() => return Poll::Ready(Ok(*denial)),
            // A mistake in the setup denies the request. In an outage the second limit still counts.
            Some(Err(error)) if !error.is_transient() => return Poll::Ready(Err(error.clone())),
            _ => {}
        }
        if let (Call::NotStarted, Some(b)) = (&*second, b) {
            *second = Call::InFlight(self.second.decide(b, cost));
        }
        if let (Call::InFlight(_), Some(b)) = (&*second, b) {
            ready!(second.poll(cx));
            self.check_queue(Part::Second, second, |receipt| {
                self.second.detach(b, Op::Cancel(cost, receipt));
            });
        }
        Poll::Ready(match (first.decided(), second.decided()) {
            (first, Some(Ok(denial))) if denial.is_denied() => {
                if let (Some(Ok(taken)), Some(a)) = (first, a) {
                    self.first.detach(a, Op::Cancel(cost, taken.receipt()));
                }
                Ok(self.renumbered::<A>(*denial))
            }
            (Some(Err(outage)), Some(Err(error))) if error.is_transient() => Err(outage.clone()),
            (_, Some(Err(error))) | (Some(Err(error)), _) => Err(error.clone()),
            (first, second) => {
                let admitted = |decided: Option<&Decided>| decided.and_then(|one| one.clone().ok());
                Ok(self.merged::<A>(admitted(first), admitted(second)))
            }
        })
    }

    /// Turns a wait into a denial if requests queue for the other limit.
    fn check_queue<F>(&self, part: Part, call: &mut Call<F>, refund: impl FnOnce(Receipt)) {
        if let Call::Done(Ok(decision)) = call {
            if let Verdict::Wait(wait) = decision.verdict {
                if !self.queue.claim(part) {
                    refund(decision.receipt());
                    *decision = denied(*decision, wait);
                }
            }
        }
    }

    /// The operation for each limit, with its own part of the receipt.
    pub(super) fn split_op<A>(op: Op) -> (Op, Op)
    where
        L1: Backend<A>,
    {
        let split = |receipt: Receipt| receipt.skip(L1::RECEIPT_WORDS);
        match op {
            Op::Refund(cost, receipt) => (op, Op::Refund(cost, split(receipt))),
            Op::Cancel(cost, receipt) => (op, Op::Cancel(cost, split(receipt))),
            Op::Forgive(cost, receipt) => (op, Op::Forgive(cost, split(receipt))),
            op => (op, op),
        }
    }

    /// The denial that a request of `cost` gets without anything being taken, if the second limit
    /// would deny it as far as that is known without I/O.
    pub(super) fn denial_ahead<A, B>(&self, a: &A, b: &B, cost: u64) -> Option<Decision>
    where
        L1: Backend<A>,
        L2: Backend<B>,
    {
        let second = self.second.current_decision(b, cost)?;
        if !self.without_other_queue(Part::Second, second).is_denied() {
            return None;
        }
        let first = match self.first.current_decision(a, cost) {
            Some(looked) => Some(counted(&*self.first, a, cost, looked)?),
            None => None,
        };
        let second = counted(&*self.second, b, cost, second)?;
        Some(self.peeked::<A>(first, Some(second)))
    }

    /// Two decisions that took nothing, as one.
    pub(super) fn peeked<A>(&self, first: Option<Decision>, second: Option<Decision>) -> Decision
    where
        L1: Backend<A>,
    {
        let checked = |part| move |decision| self.without_other_queue(part, decision);
        let first = first.map(checked(Part::First));
        self.merged::<A>(first, second.map(checked(Part::Second)))
    }

    /// The same decision, denied if it is a wait and requests queue for the other limit.
    fn without_other_queue(&self, part: Part, decision: Decision) -> Decision {
        match (decision.verdict, self.queue.get()) {
            (Verdict::Wait(wait), Some(queue)) if queue != part => denied(decision, wait),
            _ => decision,
        }
    }

    /// Both decisions as one. A request without any key is not limited.
    fn merged<A>(&self, first: Option<Decision>, second: Option<Decision>) -> Decision
    where
        L1: Backend<A>,
    {
        let receipt = |decision: Option<Decision>| {
            decision.map_or(Receipt::NOW, |decision| decision.receipt())
        };
        let receipt = receipt(first).then(L1::RECEIPT_WORDS, receipt(second));
        let merged = match (first, second.map(|second| self.renumbered::<A>(second))) {
            (Some(first), Some(second)) => merge(first, second),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => Decision::new(Verdict::Admit, u64::MAX, u64::MAX, None, 0),
        };
        merged.with_receipt(receipt)
    }

    /// A decision of the second limit, counted after the limits of the first.
    fn renumbered<A>(&self, mut decision: Decision) -> Decision
    where
        L1: Backend<A>,
    {
        decision.policy += self.first.limits();
        decision
    }
}

/// The denial `looked`, counted if the limit counts denials. `None` if another request has changed the
/// state meanwhile, so that it is none any more.
fn counted<K, L: Backend<K>>(limit: &L, key: &K, cost: u64, looked: Decision) -> Option<Decision> {
    if !looked.is_denied() || !limit.counts_denials() {
        return Some(looked);
    }
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(&mut limit.decide(key, cost)).poll(&mut cx) {
        Poll::Ready(Ok(decision)) if decision.is_denied() => Some(decision),
        Poll::Ready(Ok(taken)) => {
            limit.detach(key, Op::Cancel(cost, taken.receipt()));
            None
        }
        _ => None,
    }
}

fn denied(decision: Decision, wait: std::time::Duration) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        retry_after: Some(wait),
        ..decision
    }
}
