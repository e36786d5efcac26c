//! The gate of a limit on concurrency: permits, and the lines of the requests that wait for one.

use std::{
    fmt,
    future::Ready,
    hash::Hash,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use super::adaptive::Outcome;
use super::claim::{Claim, Usage};
use super::hold::{Held, Hold, UntilBodyEnds};
use super::permit::{Permit, Place};
use super::permits::Permits;
use super::table::Joined;
use crate::clock::{Clock, MonotonicClock, MonotonicSleep, Tick, Timer};
use crate::decision::{CompactDecision, Decision, Verdict};
use crate::error::RateLimited;
use crate::layer::{Ask, Entry, Exit, Gate, Limiting, MayWait, Passed, PolicyList, State};
use crate::queue::SeatPermit;
use crate::respond::{Policies, Settle};

/// A limit on concurrency as a layer has it. `H` says how long a request is in flight.
pub struct InFlight<H = UntilBodyEnds> {
    state: Arc<State<Permits>>,
    pub(super) options: Options,
    hold: PhantomData<fn() -> H>,
}

/// The settings that are plain values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// How many requests of one key may wait.
    pub(super) queue: u32,
    pub(super) max_wait: Duration,
    pub(super) retry_after: Duration,
    /// Denied requests are told that the server is overloaded, not that they are too many.
    pub(super) unavailable: bool,
}

/// What a request in flight has: its permit, and when it got it.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Ticket {
    permit: Option<Permit>,
    /// If the limit is adaptive. `None` once the outcome is recorded.
    started: Option<Started>,
    /// Whether the body holds the permit.
    goes_on: bool,
}

/// When a request got its permit, and how many were in flight then.
#[derive(Clone, Copy, Debug)]
struct Started {
    at: Tick,
    in_flight: u64,
}

/// What a request has while it waits for a permit.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct PermitWait {
    place: Place,
    /// Set at the first poll.
    sleep: Option<MonotonicSleep>,
    max_wait: Duration,
    #[expect(dead_code, reason = "kept for its drop")]
    seat: Option<SeatPermit>,
    figures: bool,
}

/// What a request asks for, and what leaves no room for it if that is known.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Begun {
    claim: Claim,
    full: Option<Usage>,
}

impl<H> InFlight<H> {
    pub(super) fn new(permits: Permits, unavailable: bool) -> Self {
        Self {
            state: Arc::new(State::new(permits)),
            options: Options {
                queue: 0,
                max_wait: Duration::from_secs(1),
                retry_after: Duration::from_secs(1),
                unavailable,
            },
            hold: PhantomData,
        }
    }

    /// The same limit with another hold.
    pub(super) fn with_hold<T>(self) -> InFlight<T> {
        InFlight {
            state: self.state,
            options: self.options,
            hold: PhantomData,
        }
    }

    #[inline]
    fn permits(&self) -> &Arc<Permits> {
        &self.state.backend
    }

    #[inline]
    fn ticket(&self, permit: Permit, in_flight: impl FnOnce(&Permit) -> u64) -> Ticket {
        let started = self.permits().is_adaptive().then(|| Started {
            at: MonotonicClock.now(),
            in_flight: in_flight(&permit),
        });
        Ticket {
            permit: Some(permit),
            started,
            goes_on: true,
        }
    }

    fn pass(&self, claim: Claim, usage: Usage, figures: bool) -> Passed<Ticket> {
        let permit = Permit::new(Arc::clone(self.permits()), claim);
        let decision = figures.then(|| CompactDecision::new(&usage.decision(Verdict::Admit)));
        Passed {
            ticket: Some(self.ticket(permit, |_| usage.in_flight)),
            decision,
        }
    }

    /// Lets a request that would have to wait or be denied pass in shadow mode.
    fn pass_in_shadow(&self, ask: Ask, claim: Claim) -> Passed<Ticket> {
        let usage = self.permits().table.take_anyway(claim);
        // The requests beyond the limit are those that would wait.
        let may_wait = usage.limit.saturating_add(self.options.queue.into());
        let may_pass = self.permits().may_pass(claim);
        if may_pass && usage.in_flight <= may_wait {
            self.record_waited(usage, true);
        } else {
            self.deny(may_pass, usage, true);
        }
        self.pass(claim, usage, ask.figures)
    }

    fn record_waited(&self, usage: Usage, shadow: bool) {
        let decision = usage.decision(Verdict::Wait(self.options.max_wait));
        self.state.record_waited(&decision, shadow);
    }

    /// Counts a request that is denied, and returns the reason. `may_pass` tells whether it may pass
    /// later.
    #[cold]
    fn deny(&self, may_pass: bool, usage: Usage, shadow: bool) -> RateLimited {
        let mut decision = usage.decision(Verdict::Deny);
        decision.retry_after = may_pass.then_some(self.options.retry_after);
        self.state.record_denied(&decision, shadow);
        RateLimited::concurrent(decision, self.options.unavailable)
            .by(Arc::clone(self.state.name()))
    }
}

impl<H> Limiting for InFlight<H> {
    type Limiter = Permits;

    #[inline]
    fn state(&self) -> &Arc<State<Permits>> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut Arc<State<Permits>> {
        &mut self.state
    }
}

impl<K: Hash, H> Gate<K> for InFlight<H> {
    type Ticket = Ticket;
    type Wait = PermitWait;
    type Settling = Ready<()>;
    type Begun = Begun;

    #[inline]
    fn begin(&self, key: &K, ask: Ask) -> Result<Option<Ticket>, Begun> {
        let permits = self.permits();
        let claim = Claim {
            id: permits.table.key_id(key),
            units: ask.cost,
            priority: ask.priority,
        };
        let mut full = None;
        // The table lets a request of more units than the limit be in flight alone.
        if !ask.figures && !ask.keep && ask.cost > 0 && permits.may_pass(claim) {
            match permits.table.try_take(claim) {
                Ok(usage) => {
                    let permit = Permit::new(Arc::clone(permits), claim);
                    return Ok(Some(self.ticket(permit, |_| usage.in_flight)));
                }
                Err(usage) => full = Some(usage),
            }
        }
        Err(Begun { claim, full })
    }

    #[inline(never)]
    fn enter(
        &self,
        _: &K,
        ask: Ask,
        Begun { claim, full }: Begun,
        mut may_wait: MayWait<'_>,
    ) -> Entry<Ticket, PermitWait> {
        if claim.units == 0 {
            let _ = self.state.record_admitted();
            return Entry::Pass(Passed {
                ticket: None,
                decision: None,
            });
        }
        let (table, most) = (&self.permits().table, self.options.queue);
        let may_pass = self.permits().may_pass(claim);
        let mut joined = match full {
            Some(usage) => Joined::Full(usage),
            None if may_pass => table
                .try_take(claim)
                .map_or_else(Joined::Full, Joined::Taken),
            None => Joined::Full(table.usage(claim)),
        };
        if let Joined::Full(_) = joined {
            if ask.shadow {
                return Entry::Pass(self.pass_in_shadow(ask, claim));
            }
            if may_pass && most > 0 && may_wait.seat.try_acquire() {
                joined = table.take_or_join(claim, most);
            }
        }
        match joined {
            Joined::Taken(usage) => {
                let _ = self.state.record_admitted();
                Entry::Pass(self.pass(claim, usage, ask.figures))
            }
            Joined::Waits(at, usage) => {
                let place = Place::new(Arc::clone(self.permits()), claim, at);
                self.record_waited(usage, false);
                let max_wait = self.options.max_wait;
                Entry::Wait(PermitWait {
                    place,
                    sleep: None,
                    max_wait: (may_wait.timeout)()
                        .map_or(max_wait, |timeout| timeout.min(max_wait)),
                    seat: may_wait.seat.into_permit(),
                    figures: ask.figures,
                })
            }
            Joined::Full(usage) => Entry::Deny(self.deny(may_pass, usage, false)),
        }
    }

    fn poll(
        &self,
        _: &K,
        wait: &mut PermitWait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Passed<Ticket>, RateLimited>> {
        let permit = match wait.place.poll(cx) {
            Poll::Ready(permit) => permit,
            Poll::Pending => {
                let deadline = || MonotonicClock.now().plus(wait.max_wait);
                let sleep = wait
                    .sleep
                    .get_or_insert_with(|| MonotonicClock.sleep_until(deadline()));
                ready!(Pin::new(sleep).poll(cx));
                // It may have been granted meanwhile.
                wait.place.leave()
            }
        };
        let Some(permit) = permit else {
            // Its time is over, or a request of higher priority has its place.
            let limit = self.permits().table.usage(wait.place.claim()).limit;
            let full = Usage {
                in_flight: limit,
                limit,
            };
            return Poll::Ready(Err(self.deny(true, full, false)));
        };
        let decision = wait
            .figures
            .then(|| CompactDecision::new(&permit.usage().decision(Verdict::Admit)));
        Poll::Ready(Ok(Passed {
            ticket: Some(self.ticket(permit, |permit| permit.usage().in_flight)),
            decision,
        }))
    }

    fn leave(&self, _: &K, wait: PermitWait) {
        drop(wait);
    }

    fn settle(&self, _: &K, ticket: &mut Ticket, settle: Settle) -> Option<Ready<()>> {
        match (settle, &mut ticket.permit) {
            (Settle::Charge(units @ 1..), Some(permit)) => permit.change(units),
            (Settle::Keep, _) | (_, None) => {}
            _ => ticket.goes_on = false,
        }
        None
    }

    fn policies(&self, decision: &Decision) -> PolicyList<'_> {
        let limit = decision.limit;
        self.state
            .policies(limit, &|name| Policies::at_once(name, limit))
    }
}

impl<K: Hash, Res, H: Hold<Res>> Exit<K, Res> for InFlight<H> {
    type Response = H::Response;

    #[inline]
    fn exit<E>(ticket: Option<Ticket>, result: Result<Res, E>) -> Result<H::Response, E> {
        let permit = ticket.and_then(|mut ticket| {
            ticket.record(|| result.as_ref().map_or(Outcome::Dropped, H::outcome));
            ticket.permit.take().filter(|_| ticket.goes_on)
        });
        result.map(|response| H::hold(response, Held(permit)))
    }
}

impl Ticket {
    /// Tells the limit how the request has ended, if it is adaptive.
    #[inline]
    fn record(&mut self, outcome: impl FnOnce() -> Outcome) {
        if let (Some(started), Some(permit)) = (self.started.take(), &self.permit) {
            started.record(permit, outcome());
        }
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        // A panic is no sample.
        if self.started.is_some() && !thread::panicking() {
            self.record(|| Outcome::Cancelled);
        }
    }
}

impl Started {
    fn record(self, permit: &Permit, outcome: Outcome) {
        let (permits, now) = (permit.permits(), MonotonicClock.now());
        let (latency, table) = (now.since(self.at), &permits.table);
        // A request that fills the part of its priority has filled the limit.
        let in_flight = permit.priority().whole_of(self.in_flight);
        if let Some(controller) = &permits.controller {
            let store = |limit| table.store_limit(limit);
            if controller.record(now, latency, in_flight, outcome, store) {
                table.grant_all();
            }
        } else if let Some(limits) = &table.key_limits {
            table.record(limits, permit.id(), now, |run| {
                run.record(now, latency, in_flight, outcome)
            });
        }
    }
}

/// Manual impl: `H` need not be `Clone`.
impl<H> Clone for InFlight<H> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            ..*self
        }
    }
}

/// Manual impl: `H` need not be `Debug`.
impl<H> fmt::Debug for InFlight<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight")
            .field("permits", self.permits())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
