//! The gate of a limit on concurrency: permits, and the lines of the requests that wait for one.

use std::{
    fmt,
    hash::Hash,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use super::adaptive::Outcome;
use super::hold::{Hold, UntilBodyEnds};
use super::keep::HeldPermits;
use super::line::End;
use super::permit::{Permit, WaiterPlace};
use super::permits::Permits;
use super::request::{KeyUsage, PermitRequest};
use super::source::{InProcess, PermitSource};
use super::table::Joined;
use crate::clock::{Clock, MonotonicClock, Sleep, Tick, Timer};
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::key::Priority;
use crate::layer::{
    Ask, AtGate, Entering, Exit, Gate, Limiting, Look, OnStoreError, Passed, Preview, Previewing,
    Progress, SettlePart, Settling, State, Told, rename,
};
use crate::queue::Order;
use crate::respond::{Event, Policies};

/// A limit on concurrency as a layer has it. `H` says how long a request is in flight, and `P` where the permits
/// are.
pub struct InFlight<H = UntilBodyEnds, P = InProcess> {
    state: Arc<State<Permits>>,
    source: P,
    pub(crate) options: Options,
    hold: PhantomData<fn() -> H>,
}

/// The settings that are plain values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// How many requests of one key may wait.
    pub(crate) queue: u32,
    pub(crate) max_wait: Duration,
    pub(super) order: Order,
    /// So many permits are only for requests of at least this priority.
    pub(super) reserve: (Priority, u32),
    pub(super) retry_after: Duration,
    /// Denied requests are told that the server is overloaded, not that they are too many.
    pub(super) unavailable: bool,
    /// If the permits are in a store.
    pub(super) on_store_error: OnStoreError,
}

/// What a request in flight has: its permit, and when it got it.
#[derive(Debug)]
struct Ticket {
    permit: Option<Permit>,
    /// When, and how many were in flight then, if the limit is adaptive. `None` once the outcome is recorded.
    started: Option<(Tick, u64)>,
}

/// What a request has while it waits for a permit.
#[derive(Debug)]
struct PermitWait {
    place: WaiterPlace,
    /// Set at the first poll.
    sleep: Option<Sleep>,
    max_wait: Duration,
}

/// What a request has of a limit on concurrency: nothing yet, a place in line, or its permit.
#[derive(Debug, Default)]
pub struct InFlightEntry(Stage);

#[derive(Debug, Default)]
enum Stage {
    /// It has not asked.
    #[default]
    New,
    Waits(PermitWait),
    Has(Ticket),
    Nothing,
}

impl<H, P> InFlight<H, P> {
    pub(crate) fn new(permits: Permits, source: P, unavailable: bool) -> Self {
        Self {
            state: Arc::new(State::new(permits)),
            source,
            options: Options {
                queue: 0,
                max_wait: Duration::from_secs(1),
                order: Order::default(),
                reserve: (Priority::HIGH, 0),
                retry_after: Duration::from_secs(1),
                unavailable,
                on_store_error: OnStoreError::default(),
            },
            hold: PhantomData,
        }
    }

    /// The same limit with another hold.
    pub(super) fn with_hold<T>(self) -> InFlight<T, P> {
        InFlight {
            state: self.state,
            source: self.source,
            options: self.options,
            hold: PhantomData,
        }
    }

    #[inline]
    fn permits(&self) -> &Arc<Permits> {
        &self.state.backend
    }

    #[inline]
    fn request<K: Hash>(&self, key: &K, ask: Ask) -> PermitRequest {
        let (least, permits) = self.options.reserve;
        PermitRequest {
            order: self.options.order,
            reserved: if ask.priority < least { permits } else { 0 },
            ..self.permits().request(key, ask.cost, ask.priority)
        }
    }

    fn permit(&self, request: PermitRequest) -> Permit {
        Permit::new(Arc::clone(self.permits()), request)
    }

    #[cold]
    fn fail(&self, ask: Ask, error: StoreError) -> Result<Passed, RateLimited> {
        self.state.record(Event::StoreError(&error), false);
        let allow = self.options.on_store_error == OnStoreError::Allow && error.is_transient();
        if !allow && !ask.shadow {
            return Err(RateLimited::unavailable(error));
        }
        Ok(Passed::InOutage)
    }

    fn record_waited(&self, usage: KeyUsage, shadow: bool) {
        let decision = usage.decision(Verdict::Wait(self.options.max_wait));
        self.state.record(Event::Waits(&decision, None), shadow);
    }

    /// Counts a request that is denied, and returns the reason. `may_pass` tells whether it may pass
    /// later.
    #[cold]
    fn deny(&self, may_pass: bool, usage: KeyUsage, shadow: bool) -> RateLimited {
        let mut decision = usage.decision(Verdict::Deny);
        decision.retry_after = may_pass.then_some(self.options.retry_after);
        let denied = RateLimited::concurrent(decision, self.options.unavailable)
            .by(Arc::clone(self.state.name()));
        self.state.record(Event::Denied(&denied), shadow);
        denied
    }
}

impl<H, P: Clone> Limiting for InFlight<H, P> {
    type Limiter = Permits;

    const LAYER: &'static str = "ConcurrencyLimitLayer";

    #[inline]
    fn state(&self) -> &Arc<State<Permits>> {
        &self.state
    }

    fn queues(&self) -> bool {
        self.options.queue > 0
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        rename(&mut self.state, name, number);
    }
}

impl<K: Hash, H, P: PermitSource<K>> Gate<K> for InFlight<H, P> {
    type Entry = InFlightEntry;

    #[inline]
    fn at<'a>(&'a self, key: &'a K, entry: &'a mut InFlightEntry) -> impl AtGate + 'a {
        let (gate, stage) = (self, &mut entry.0);
        AtInFlight { gate, key, stage }
    }
}

/// A request at a limit on concurrency.
struct AtInFlight<'a, K, H, P> {
    gate: &'a InFlight<H, P>,
    key: &'a K,
    stage: &'a mut Stage,
}

impl<K: Hash, H, P: PermitSource<K>> AtGate for AtInFlight<'_, K, H, P> {
    fn look(&mut self, ask: Ask) -> Look {
        let (gate, request) = (self.gate, self.gate.request(self.key, ask));
        let usage = gate.permits().table.usage(request);
        let is_full = usage.in_flight >= usage.limit && gate.options.queue == 0 && !P::ASKS;
        if is_full || !gate.permits().may_pass(request) {
            Look::Denies
        } else {
            Look::Holds
        }
    }

    fn preview(&mut self, ask: Ask) -> Vec<Previewing> {
        let gate = self.gate;
        let usage = gate.permits().table.usage(gate.request(self.key, ask));
        let verdict = match self.look(ask) {
            Look::Denies => Verdict::Deny,
            _ if usage.in_flight >= usage.limit => Verdict::Wait(gate.options.max_wait),
            _ => Verdict::Admit,
        };
        let preview = Preview {
            name: Arc::clone(gate.state.name()),
            decision: usage.decision(verdict),
            quota: None,
            shadow: ask.shadow,
        };
        vec![Box::pin(std::future::ready(Ok(preview)))]
    }

    fn progress(&mut self) -> Progress {
        match self.stage {
            Stage::New => Progress::New,
            Stage::Waits(_) => Progress::Waits,
            Stage::Has(_) | Stage::Nothing => Progress::Passed,
        }
    }

    #[inline]
    fn poll_enter(
        &mut self,
        mut entering: Entering<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        if let Stage::New = self.stage {
            *self.stage = Stage::Nothing;
            let entered = self.enter(&mut entering);
            if entered.is_ready() {
                return entered;
            }
        }
        cx.map_or(Poll::Pending, |cx| self.poll_wait(&mut entering, cx))
    }

    fn leave(&mut self) {
        if let Stage::Has(ticket) = &mut *self.stage {
            // The service has not had the request, so it is no sample.
            ticket.started = None;
        }
        *self.stage = Stage::Nothing;
    }

    /// What a request holds is its place until the end, whatever its response says.
    fn settle(&mut self, _: SettlePart<'_>) -> Option<Settling> {
        None
    }

    fn limits(&mut self) -> usize {
        1
    }

    fn policies(&mut self, decision: Decision, told: Told<'_>) {
        let limit = decision.limit;
        let make = |name: &str| Policies::at_once(name, limit);
        told(None, &self.gate.state.policies(limit, &make), &decision);
    }
}

impl<K: Hash, Res, H: Hold<Res>, P: PermitSource<K>> Exit<K, Res> for InFlight<H, P> {
    type Response = H::Response;

    #[inline]
    fn exit<E>(entry: InFlightEntry, result: Result<Res, E>) -> Result<H::Response, E> {
        InFlight::<H>::exit_all([entry], result)
    }
}

impl<K: Hash, H, P: PermitSource<K>> AtInFlight<'_, K, H, P> {
    /// Asks for a permit.
    #[inline]
    fn enter(&mut self, entering: &mut Entering<'_>) -> Poll<Result<Passed, RateLimited>> {
        let (gate, ask) = (self.gate, entering.ask);
        let request = gate.request(self.key, ask);
        if request.units == 0 {
            gate.state.record(Event::Admitted, false);
            return Poll::Ready(Ok(Passed::AtOnce));
        }
        let Options {
            queue, max_wait, ..
        } = gate.options;
        let table = &gate.permits().table;
        let may_pass = gate.permits().may_pass(request);
        let asks = P::ASKS && may_pass;
        // A request in shadow mode waits for no permit.
        let most = if ask.shadow { 0 } else { queue };
        let joined = if asks {
            if most > 0 && !entering.seat.try_acquire() {
                return Poll::Ready(Err(gate.deny(true, table.usage(request), false)));
            }
            match gate.source.ask(self.key, gate.permits(), request, most) {
                Ok(joined) => joined,
                Err(error) => return Poll::Ready(gate.fail(ask, error)),
            }
        } else if may_pass {
            match table.try_take(request) {
                Ok(usage) => Joined::Taken(usage),
                Err(_) if most > 0 && entering.seat.try_acquire() => {
                    table.take_or_join(request, most, |_| {})
                }
                Err(usage) => Joined::Full(usage),
            }
        } else {
            Joined::Full(table.usage(request))
        };
        match joined {
            Joined::Taken(usage) => {
                gate.state.record(Event::Admitted, false);
                self.pass(gate.permit(request), usage, entering);
                Poll::Ready(Ok(Passed::AtOnce))
            }
            Joined::Waits(queued, usage) => {
                let longest = if asks {
                    max_wait.saturating_add(gate.source.failure().0)
                } else {
                    gate.record_waited(usage, false);
                    max_wait
                };
                let left = entering.until.since(MonotonicClock.now());
                *self.stage = Stage::Waits(PermitWait {
                    place: WaiterPlace::new(Arc::clone(gate.permits()), request, queued),
                    sleep: None,
                    max_wait: left.min(longest),
                });
                Poll::Pending
            }
            Joined::Full(_) if ask.shadow && !asks => {
                Poll::Ready(Ok(self.pass_in_shadow(request, entering)))
            }
            Joined::Full(usage) => Poll::Ready(Err(gate.deny(may_pass, usage, false))),
        }
    }

    fn poll_wait(
        &mut self,
        entering: &mut Entering<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Passed, RateLimited>> {
        let (gate, ask) = (self.gate, entering.ask);
        let Stage::Waits(wait) = &mut *self.stage else {
            return Poll::Pending;
        };
        let ended = match wait.place.poll(cx) {
            Poll::Ready(ended) => ended,
            Poll::Pending => {
                let deadline = || MonotonicClock.now().plus(wait.max_wait);
                let sleep = wait
                    .sleep
                    .get_or_insert_with(|| MonotonicClock.sleep_until(deadline()));
                ready!(Pin::new(sleep).poll(cx));
                // It may have been granted meanwhile.
                wait.place.leave().ok_or(End::Displaced)
            }
        };
        let request = wait.place.request;
        *self.stage = Stage::Nothing;
        let permit = match ended {
            Ok(permit) => permit,
            Err(End::Failed) => return Poll::Ready(gate.fail(ask, gate.source.failure().1)),
            Err(_) if ask.shadow => {
                return Poll::Ready(Ok(self.pass_in_shadow(request, entering)));
            }
            Err(_) => {
                // Its time is over, or a request of higher priority has its place.
                let limit = gate.permits().table.usage(request).limit;
                let full = KeyUsage {
                    in_flight: limit,
                    limit,
                };
                return Poll::Ready(Err(gate.deny(true, full, false)));
            }
        };
        let usage = permit.usage();
        if P::ASKS {
            gate.state.record(Event::Admitted, false);
        }
        self.pass(permit, usage, entering);
        Poll::Ready(Ok(Passed::Waited))
    }

    /// Lets a request go on that has its permit.
    #[inline]
    fn pass(&mut self, permit: Permit, usage: KeyUsage, entering: &mut Entering<'_>) {
        let started = || (MonotonicClock.now(), usage.in_flight);
        *self.stage = Stage::Has(Ticket {
            permit: Some(permit),
            started: self.gate.permits().is_adaptive().then(started),
        });
        let is_read = entering.ask.figures;
        *entering.figures = is_read.then(|| usage.decision(Verdict::Admit));
    }

    /// In shadow mode a request passes beyond the limit.
    fn pass_in_shadow(&mut self, request: PermitRequest, entering: &mut Entering<'_>) -> Passed {
        let gate = self.gate;
        let usage = gate.permits().table.take_anyway(request);
        // The requests beyond the limit are those that would wait.
        let may_wait = usage.limit.saturating_add(gate.options.queue.into());
        let may_pass = gate.permits().may_pass(request);
        if may_pass && usage.in_flight <= may_wait {
            gate.record_waited(usage, true);
        } else {
            gate.deny(may_pass, usage, true);
        }
        self.pass(gate.permit(request), usage, entering);
        Passed::AtOnce
    }
}

impl<H> InFlight<H> {
    /// Moves the permits of several limits into the response, or releases them.
    #[inline]
    pub(crate) fn exit_all<Res, E>(
        entries: impl IntoIterator<Item = InFlightEntry>,
        result: Result<Res, E>,
    ) -> Result<H::Response, E>
    where
        H: Hold<Res>,
    {
        let permits = entries.into_iter().filter_map(|entry| {
            let Stage::Has(mut ticket) = entry.0 else {
                return None;
            };
            ticket.record(|| result.as_ref().map_or(Outcome::Dropped, H::outcome));
            ticket.permit.take()
        });
        let held: HeldPermits = permits.collect();
        result.map(|response| H::hold(response, held))
    }
}

impl Ticket {
    /// Tells the limit how the request has ended, if it is adaptive.
    #[inline]
    fn record(&mut self, outcome: impl FnOnce() -> Outcome) {
        if let (Some(started), Some(permit)) = (self.started.take(), &self.permit) {
            permit.record(started, outcome());
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

/// Manual impl: `H` need not be `Clone`.
impl<H, P: Clone> Clone for InFlight<H, P> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            source: self.source.clone(),
            ..*self
        }
    }
}

/// Manual impl: `H` need not be `Debug`.
impl<H, P> fmt::Debug for InFlight<H, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight")
            .field("permits", self.permits())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
