//! One of several limits, and how they decide together, whatever their types.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use crate::algorithm::{binds_more, merge};
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::key::{Priority, joint_cost};
use crate::layer::gate::{Ask, Gate, Look, MayWait, Passed, Previewing, SettlePart, poll_once};
use crate::queue::RequestSeat;
use crate::respond::{CostHandle, OwnRules};

/// What a request asks of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartAsk {
    pub(crate) cost: u64,
    pub(crate) priority: Priority,
    pub(crate) shadow: bool,
    /// The decision of the limit does not count among those of all limits.
    pub(crate) silent: bool,
    /// Responses state the limit.
    pub(crate) stated: bool,
}

/// One of several limits, and what a request has of it.
pub(crate) struct PartOf<'a, K, G: Gate<K>> {
    pub(crate) gate: &'a G,
    pub(crate) key: &'a K,
    pub(crate) ask: PartAsk,
    /// Which of how many it is.
    pub(crate) number: (usize, usize),
    /// What the limit says about its responses.
    pub(crate) rules: OwnRules<'a>,
    pub(crate) slot: &'a mut Slot<G::Entry>,
}

/// What a request has of one of several limits.
#[derive(Debug, Default)]
pub struct Slot<E> {
    pub(crate) entry: E,
    stage: Stage,
}

/// How far a request is with one of several limits.
#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// It was not asked.
    #[default]
    New,
    Waits,
    Passed(Passed),
    /// It has denied the request, or the request has left.
    Left,
}

/// A [`PartOf`], whatever its types.
pub(crate) trait Part {
    fn is_new(&self) -> bool;
    fn waits(&self) -> bool;
    fn look(&self, ask: Ask) -> Look;
    /// See [`Gate::preview`].
    fn preview(&self, ask: Ask) -> Vec<Previewing>;
    /// See [`Gate::poll_enter`].
    fn poll_enter(
        &mut self,
        ask: Ask,
        may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<(), RateLimited>>;
    fn leave(&mut self);
    fn settle(&mut self, settle: SettlePart<'_>) -> Option<Settling>;
    fn cost_handle(&mut self) -> Option<CostHandle>;
    fn ended(&self) -> Ended;
}

/// What a limit has decided on a request that passed, or all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(super) decision: Option<Decision>,
    pub(super) waited: bool,
    pub(super) decided: bool,
}

/// The number by which a decision of several limits says which of them has made it, among the limits
/// of that part.
const fn numbered(policy: usize, (own, of): (usize, usize)) -> usize {
    policy * of + own
}

impl<K, G: Gate<K>> PartOf<'_, K, G> {
    fn ask(&self, ask: Ask) -> Ask {
        Ask {
            cost: joint_cost(self.ask.cost, ask.cost),
            priority: self.ask.priority.min(ask.priority),
            shadow: self.ask.shadow || ask.shadow,
            figures: ask.shadow || (ask.figures && self.needs_figures(ask)),
            shares: ask.shares,
            keep: ask.keep,
        }
    }

    /// Whether its decision is one of those that are stated or shared.
    const fn needs_figures(&self, ask: Ask) -> bool {
        !self.ask.silent && (self.ask.stated || ask.shares)
    }
}

impl<K, G: Gate<K>> Part for PartOf<'_, K, G> {
    fn is_new(&self) -> bool {
        matches!(self.slot.stage, Stage::New)
    }

    fn waits(&self) -> bool {
        matches!(self.slot.stage, Stage::Waits)
    }

    fn look(&self, ask: Ask) -> Look {
        self.gate.look(self.key, self.ask(ask))
    }

    fn preview(&self, ask: Ask) -> Vec<Previewing> {
        self.gate.preview(self.key, self.ask(ask))
    }

    fn poll_enter(
        &mut self,
        ask: Ask,
        may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<(), RateLimited>> {
        let (ask, Slot { entry, stage }) = (self.ask(ask), &mut *self.slot);
        *stage = Stage::Waits;
        let entered = ready!(self.gate.poll_enter(self.key, ask, entry, may_wait, cx));
        *stage = entered
            .as_ref()
            .map_or(Stage::Left, |passed| Stage::Passed(*passed));
        Poll::Ready(match entered {
            Ok(_) => Ok(()),
            Err(denied) => Err(denied.map_decision(|decision| {
                decision.policy = numbered(decision.policy, self.number);
            })),
        })
    }

    fn leave(&mut self) {
        if !self.is_new() {
            self.gate.leave(self.key, &mut self.slot.entry);
            self.slot.stage = Stage::Left;
        }
    }

    fn settle(&mut self, settle: SettlePart<'_>) -> Option<Settling> {
        let own = |rules: OwnRules<'_>| settle(rules.or(self.rules));
        let mut settling = self.gate.settle(self.key, &mut self.slot.entry, &own)?;
        match poll_once(&mut settling) {
            Poll::Ready(_) => None,
            Poll::Pending => Some(Box::pin(async move {
                settling.await;
            })),
        }
    }

    fn cost_handle(&mut self) -> Option<CostHandle> {
        self.gate.cost_handle(self.key, &mut self.slot.entry)
    }

    fn ended(&self) -> Ended {
        let Stage::Passed(passed) = self.slot.stage else {
            return Ended::default();
        };
        Ended {
            decision: passed.decision.map(|mut decision| {
                decision.policy = numbered(decision.policy, self.number);
                decision
            }),
            waited: passed.waited,
            decided: passed.decided,
        }
    }
}

/// Asks one limit after the other, until the request has passed all, waits for one, or is denied.
/// Without a context no wait is polled.
pub(super) fn go_on(
    parts: &mut [&mut dyn Part],
    ask: Ask,
    MayWait { seat, until }: MayWait<'_>,
    mut cx: Option<&mut Context<'_>>,
) -> Poll<Result<Ended, RateLimited>> {
    loop {
        let may_wait = MayWait {
            seat: &mut *seat,
            until,
        };
        let went_on = if let Some(part) = parts.iter_mut().find(|part| part.waits()) {
            let Some(cx) = cx.as_deref_mut() else {
                return Poll::Pending;
            };
            ready!(part.poll_enter(ask, may_wait, Some(cx)))
        } else if let Some((part, is_last)) = next(parts, ask) {
            // Another one may deny the request later.
            let keep = ask.keep || !is_last;
            match part.poll_enter(Ask { keep, ..ask }, may_wait, None) {
                Poll::Ready(entered) => entered,
                Poll::Pending => continue,
            }
        } else {
            return Poll::Ready(Ok(all_ended(parts)));
        };
        if let Err(denied) = went_on {
            return Poll::Ready(Err(deny(parts, ask, denied)));
        }
        if ask.shadow && stops_in_shadow(parts) {
            return Poll::Ready(Ok(all_ended(parts)));
        }
    }
}

/// The limit that is asked next, and whether it is the last one.
fn next<'a>(parts: &'a mut [&mut dyn Part], ask: Ask) -> Option<(&'a mut dyn Part, bool)> {
    let is_last = parts.iter().filter(|part| part.is_new()).count() == 1;
    let mut new = parts.iter_mut().filter(|part| part.is_new());
    let part = if is_last {
        new.next()
    } else {
        new.min_by_key(|part| part.look(ask))
    };
    Some((&mut **part?, is_last))
}

/// Gives back what the limits have taken of a request that one has `denied`. Of those that deny it,
/// the strictest one is told, and each counts the denial.
#[cold]
fn deny(parts: &mut [&mut dyn Part], ask: Ask, mut denied: RateLimited) -> RateLimited {
    for part in &mut *parts {
        if part.is_new() && part.look(ask) == Look::Denies {
            let may_wait = MayWait {
                seat: &mut RequestSeat::NotRequired,
                until: None,
            };
            let keep = Ask { keep: true, ..ask };
            if let Poll::Ready(Err(other)) = part.poll_enter(keep, may_wait, None) {
                denied = stricter(denied, other);
            }
        }
    }
    for part in parts {
        part.leave();
    }
    denied
}

fn stricter(one: RateLimited, other: RateLimited) -> RateLimited {
    match (one.decision(), other.decision()) {
        (Some(first), Some(second)) if binds_more(second, first) => other,
        _ => one,
    }
}

/// Whether a request that only passes because all limits are in shadow mode was denied. Then the
/// others give back what they have taken, and are not asked any more.
fn stops_in_shadow(parts: &mut [&mut dyn Part]) -> bool {
    let is_denied = |part: &dyn Part| part.ended().decision.is_some_and(|one| one.is_denied());
    let stops = parts.iter().any(|part| is_denied(&**part));
    if stops {
        let others = parts.iter_mut().filter(|part| !is_denied(&***part));
        others.for_each(|part| part.leave());
    }
    stops
}

/// What all limits have decided: the figures are those of the strictest one.
fn all_ended(parts: &[&mut dyn Part]) -> Ended {
    let ended = parts.iter().map(|part| part.ended());
    ended.fold(Ended::default(), |all, one| Ended {
        decision: match (all.decision, one.decision) {
            (Some(all), Some(one)) => Some(merge(all, one)),
            (all, one) => all.or(one),
        },
        waited: all.waited || one.waited,
        decided: all.decided || one.decided,
    })
}

/// Settles the cost in several limits.
pub(super) type Settling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is pending has begun, so it ends as soon as if it were awaited together. `None` if all is settled.
pub(super) fn settle_all(pending: impl Iterator<Item = Settling>) -> Option<Settling> {
    let pending: Vec<_> = pending.collect();
    (!pending.is_empty()).then(|| -> Settling {
        Box::pin(async move {
            for one in pending {
                one.await;
            }
        })
    })
}
