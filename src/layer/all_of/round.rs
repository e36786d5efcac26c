//! How several limits decide together: one is asked after the other.

use std::{
    mem,
    task::{Context, Poll, ready},
};

use crate::algorithm::merge;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::layer::gate::{Ask, Gate, MayWait, Passed, Progress};

/// What a request has of several limits.
#[derive(Debug, Default)]
pub struct AllEntry<E> {
    pub(crate) each: E,
    /// What those have decided that it has passed, and the figures of the strictest one.
    passed: Passed,
    figures: Option<Decision>,
}

/// The limits of a request, and what it asks of them.
pub(super) struct Round<'a, K, E> {
    pub(super) gates: &'a [&'a dyn Gate<K, Entry = E>],
    pub(super) key: &'a K,
    pub(super) ask: Ask,
}

impl<K, E: Default + Send + 'static> Round<'_, K, E> {
    /// Goes on until the request has passed all limits, waits for one, or is denied. Without a context no wait is
    /// polled.
    pub(super) fn go_on(
        &self,
        AllEntry {
            each,
            passed,
            figures: strictest,
        }: &mut AllEntry<E>,
        MayWait {
            seat,
            until,
            figures,
        }: &mut MayWait<'_>,
        mut cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        while let Some((at, waits, is_last)) = self.next(each) {
            let mut own_cx = None;
            if waits {
                let Some(cx) = cx.as_deref_mut() else {
                    return Poll::Pending;
                };
                own_cx = Some(cx);
            }
            // Another one may deny the request later.
            let keep = self.ask.keep || !is_last;
            let ask = Ask { keep, ..self.ask };
            let may_wait = MayWait {
                seat,
                until: *until,
                figures,
            };
            let entered = self.gates[at].poll_enter(self.key, ask, each, may_wait, own_cx);
            if !waits && entered.is_pending() {
                continue;
            }
            let own = match ready!(entered) {
                Ok(own) => own,
                Err(denied) => {
                    self.leave_all(each);
                    let numbered = |decision: &mut Decision| self.number(decision, at);
                    return Poll::Ready(Err(denied.map_decision(numbered)));
                }
            };
            if let Some(decision) = figures.as_mut() {
                self.number(decision, at);
            }
            if self.ask.shadow && figures.is_some_and(|own| own.is_denied()) {
                // The request only passes because all limits are in shadow mode.
                let others = self.gates.iter().enumerate();
                let others = others.filter(|(other, _)| *other != at);
                others.for_each(|(_, gate)| gate.leave(self.key, each));
                return Poll::Ready(Ok(own));
            }
            *passed = (*passed).max(own);
            *strictest = match (*strictest, figures.take()) {
                (Some(all), Some(own)) => Some(merge(all, own)),
                (all, own) => all.or(own),
            };
        }
        **figures = strictest.take();
        Poll::Ready(Ok(mem::take(passed)))
    }

    /// The limit that is polled next, whether the request waits for it already, and whether no other is left.
    fn next(&self, each: &mut E) -> Option<(usize, bool, bool)> {
        let (mut new, mut first) = (0, 0);
        let mut waits = None;
        for (at, gate) in self.gates.iter().enumerate().rev() {
            match gate.progress(self.key, each) {
                Progress::New => (new, first) = (new + 1, at),
                Progress::Waits => waits = Some(at),
                Progress::Passed => {}
            }
        }
        match (waits, new) {
            (Some(at), _) => Some((at, true, new == 0)),
            (None, 0) => None,
            (None, 1) => Some((first, false, true)),
            (None, _) => {
                let of_new = (first..self.gates.len())
                    .filter(|at| self.gates[*at].progress(self.key, each) == Progress::New);
                let least = { of_new }.min_by_key(|at| self.gates[*at].look(self.key, self.ask));
                least.map(|at| (at, false, false))
            }
        }
    }

    /// Counts the policy of a decision among those of all limits.
    fn number(&self, decision: &mut Decision, at: usize) {
        let limits = |at: usize| self.gates[at].limits(self.key);
        // A fallback may have other limits than it has said.
        decision.policy = if decision.policy < limits(at) {
            decision.policy + (0..at).map(limits).sum::<usize>()
        } else {
            usize::MAX
        };
    }

    /// Gives back what the limits have taken of a request that does not go on.
    fn leave_all(&self, each: &mut E) {
        for gate in self.gates {
            gate.leave(self.key, each);
        }
    }
}
