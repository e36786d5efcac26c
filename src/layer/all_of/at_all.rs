//! How several limits decide together: one is asked after the other.

use std::task::{Context, Poll, ready};

use super::part::GatePart;
use crate::algorithm::merge;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::layer::{
    counts::Outcome,
    gate::{Ask, AtGate, Entering, Look, Progress, SettlePart, Told},
    state::State,
};
use crate::respond::CostHandle;

/// The limits of an `AllOf`.
pub(crate) trait Parts<K>: Send + Sync + Sized + 'static {
    /// What a request has of each.
    type Entries: Default + Send + 'static;

    /// Calls `run` with a request at the limits that apply to it.
    fn with<T>(
        &self,
        key: &K,
        entries: &mut Self::Entries,
        run: impl FnOnce(&mut [GatePart<'_>]) -> T,
    ) -> T;
}

/// What a request has of several limits.
#[derive(Debug, Default)]
pub struct AllEntry<E> {
    pub(crate) each: E,
    /// The figures of the strictest one of those that it has passed.
    figures: Option<Decision>,
}

/// A request at several limits.
pub(super) struct AtAll<'a, K, P: Parts<K>> {
    pub(super) state: &'a State<P>,
    pub(super) key: &'a K,
    pub(super) entry: &'a mut AllEntry<P::Entries>,
}

impl<K, P: Parts<K>> AtAll<'_, K, P> {
    fn with<T>(&mut self, run: impl FnOnce(&mut [GatePart<'_>]) -> T) -> T {
        let parts = &self.state.backend;
        parts.with(self.key, &mut self.entry.each, run)
    }

    /// Goes on until the request has passed all limits whose turn it is, waits for one, or is denied.
    fn go_on(
        &mut self,
        entering: &mut Entering<'_>,
        mut cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<(), RateLimited>> {
        let AllEntry {
            each,
            figures: strictest,
        } = &mut *self.entry;
        self.state.backend.with(self.key, each, |parts| {
            while let Some((at, is_last, up_to)) = next(parts, entering.ask, entering.up_to) {
                let part = &mut parts[at];
                let mut ask = part.ask(entering.ask);
                // Another one may deny the request later.
                ask.keep |= !is_last;
                let mut own = entering.with(ask);
                own.up_to = up_to;
                let entered = part.at.poll_enter(own, cx.as_deref_mut());
                if let Err(denied) = ready!(entered) {
                    for part in &mut *parts {
                        part.at.leave();
                    }
                    let numbered = |decision: &mut Decision| number(parts, decision, at);
                    return Poll::Ready(Err(denied.map_decision(numbered)));
                }
                let mut figures = entering.figures.take();
                if let Some(decision) = &mut figures {
                    number(parts, decision, at);
                }
                if entering.ask.shadow && figures.is_some_and(|own| own.is_denied()) {
                    // The request only passes because all limits are in shadow mode.
                    let (before, rest) = parts.split_at_mut(at);
                    for other in before.iter_mut().chain(&mut rest[1..]) {
                        other.at.leave();
                    }
                    *strictest = figures;
                    break;
                }
                *strictest = match (*strictest, figures) {
                    (Some(all), Some(own)) => Some(merge(all, own)),
                    (all, own) => all.or(own),
                };
            }
            Poll::Ready(Ok(()))
        })
    }
}

/// The limit that is polled next, whether no other is left, and up to which of its own it asks: the one for which the
/// request waits, else the one of the least [`Look`] that it has not asked, if that is at most `up_to`.
fn next(parts: &mut [GatePart<'_>], ask: Ask, up_to: Look) -> Option<(usize, bool, Look)> {
    let (mut left, mut waits) = (0, None);
    for (at, part) in parts.iter_mut().enumerate() {
        match part.at.progress() {
            Progress::New => left += 1,
            Progress::Waits => waits = Some(at),
            Progress::Passed => {}
        }
    }
    let is_last = left + usize::from(waits.is_some()) == 1;
    let in_any_case = is_last && up_to == Look::Holds;
    let new = parts.iter_mut().enumerate().filter_map(|(at, part)| {
        let is_new = part.at.progress() == Progress::New;
        let look = |part: &mut GatePart<'_>| if in_any_case { up_to } else { part.look(ask) };
        is_new.then(|| (look(part), at))
    });
    let (look, at) = match waits {
        Some(at) => (Look::Waits, at),
        None => new.min().filter(|(look, _)| *look <= up_to)?,
    };
    Some((at, is_last, if is_last { up_to } else { look }))
}

/// Counts the policy of a decision among those of all limits.
fn number(parts: &mut [GatePart<'_>], decision: &mut Decision, at: usize) {
    // A fallback may have other limits than it has said.
    decision.policy = if decision.policy < parts[at].at.limits() {
        let before = parts[..at].iter_mut().map(|part| part.at.limits());
        decision.policy + before.sum::<usize>()
    } else {
        usize::MAX
    };
}

impl<K, P: Parts<K>> AtGate for AtAll<'_, K, P> {
    fn look(&mut self, ask: Ask) -> Look {
        self.with(|parts| {
            let new = parts.iter_mut().filter_map(|part| {
                let is_new = part.at.progress() == Progress::New;
                is_new.then(|| part.look(ask))
            });
            new.min().unwrap_or(Look::Passes)
        })
    }

    fn progress(&mut self) -> Progress {
        self.with(|parts| {
            let all = parts.iter_mut().map(|part| part.at.progress());
            all.min().unwrap_or(Progress::Passed)
        })
    }

    fn poll_enter(
        &mut self,
        mut entering: Entering<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<(), RateLimited>> {
        let entered = ready!(self.go_on(&mut entering, cx));
        let (ask, figures, up_to) = (entering.ask, entering.figures, entering.up_to);
        if entered.is_ok() && up_to < Look::Holds && self.progress() == Progress::New {
            return Poll::Ready(entered);
        }
        *figures = self.entry.figures.take();
        self.state.counts.count(match &entered {
            Err(_) => Outcome::Denied,
            Ok(()) => match figures.filter(|_| ask.shadow) {
                Some(shadow) if shadow.is_denied() => Outcome::ShadowDenied,
                Some(shadow) if !shadow.is_admitted() => Outcome::ShadowWaited,
                _ => Outcome::Admitted,
            },
        });
        *figures = figures.filter(|_| ask.figures);
        Poll::Ready(entered)
    }

    fn leave(&mut self) {
        self.with(|parts| {
            for part in parts {
                part.at.leave();
            }
        });
    }

    fn settle(&mut self, settle: SettlePart<'_>) {
        self.with(|parts| {
            for part in parts {
                let rules = part.rules;
                part.at.settle(&|own, at_end| settle(own.or(rules), at_end));
            }
        });
    }

    fn cost_handle(&mut self) -> Option<CostHandle> {
        self.with(|parts| {
            let handles = parts.iter_mut().filter_map(|part| part.at.cost_handle());
            handles.reduce(|all, one| all.and(Some(one)))
        })
    }

    fn limits(&mut self) -> usize {
        self.with(|parts| parts.iter_mut().map(|part| part.at.limits()).sum())
    }

    fn policies(&mut self, mut decision: Decision, told: Told<'_>) {
        self.with(|parts| {
            for part in parts {
                let own = part.at.limits();
                if decision.policy < own {
                    let rules = part.rules;
                    let told: Told<'_> =
                        &mut |own, policies, decision| told(own.or(rules), policies, decision);
                    return part.at.policies(decision, told);
                }
                decision.policy -= own;
            }
        });
    }
}
