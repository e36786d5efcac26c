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
    Ask, Exit, Gate, Limiting, Look, MayWait, OnStoreError, Passed, Preview, Previewing, Progress,
    SettlePart, Settling, State, Told, rename,
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

    /// Lets a request go on that has its permit.
    #[inline]
    fn pass(
        &self,
        permit: Permit,
        usage: KeyUsage,
        ask: Ask,
        figures: &mut Option<Decision>,
        entry: &mut InFlightEntry,
    ) {
        let started = || (MonotonicClock.now(), usage.in_flight);
        entry.0 = Stage::Has(Ticket {
            permit: Some(permit),
            started: self.permits().is_adaptive().then(started),
        });
        *figures = ask.figures.then(|| usage.decision(Verdict::Admit));
    }

    fn permit(&self, request: PermitRequest) -> Permit {
        Permit::new(Arc::clone(self.permits()), request)
    }

    /// In shadow mode a request passes beyond the limit.
    fn pass_in_shadow(
        &self,
        ask: Ask,
        request: PermitRequest,
        figures: &mut Option<Decision>,
        entry: &mut InFlightEntry,
    ) -> Passed {
        let usage = self.permits().table.take_anyway(request);
        // The requests beyond the limit are those that would wait.
        let may_wait = usage.limit.saturating_add(self.options.queue.into());
        let may_pass = self.permits().may_pass(request);
        if may_pass && usage.in_flight <= may_wait {
            self.record_waited(usage, true);
        } else {
            self.deny(may_pass, usage, true);
        }
        self.pass(self.permit(request), usage, ask, figures, entry);
        Passed::AtOnce
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

    fn look(&self, key: &K, ask: Ask) -> Look {
        let request = self.request(key, ask);
        let usage = self.permits().table.usage(request);
        let is_full = usage.in_flight >= usage.limit && self.options.queue == 0 && !P::ASKS;
        if is_full || !self.permits().may_pass(request) {
            Look::Denies
        } else {
            Look::Holds
        }
    }

    fn preview(&self, key: &K, ask: Ask) -> Vec<Previewing> {
        let usage = self.permits().table.usage(self.request(key, ask));
        let verdict = match self.look(key, ask) {
            Look::Denies => Verdict::Deny,
            _ if usage.in_flight >= usage.limit => Verdict::Wait(self.options.max_wait),
            _ => Verdict::Admit,
        };
        let preview = Preview {
            name: Arc::clone(self.state.name()),
            decision: usage.decision(verdict),
            quota: None,
            shadow: ask.shadow,
        };
        vec![Box::pin(std::future::ready(Ok(preview)))]
    }

    fn progress(&self, _: &K, entry: &mut InFlightEntry) -> Progress {
        match entry.0 {
            Stage::New => Progress::New,
            Stage::Waits(_) => Progress::Waits,
            Stage::Has(_) | Stage::Nothing => Progress::Passed,
        }
    }

    #[inline]
    fn poll_enter(
        &self,
        key: &K,
        ask: Ask,
        entry: &mut InFlightEntry,
        may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        if let Stage::New = entry.0 {
            entry.0 = Stage::Nothing;
            let request = self.request(key, ask);
            return self.enter(key, ask, request, entry, may_wait);
        }
        cx.map_or(Poll::Pending, |cx| {
            self.poll_wait(ask, entry, may_wait.figures, cx)
        })
    }

    fn leave(&self, _: &K, entry: &mut InFlightEntry) {
        if let Stage::Has(ticket) = &mut entry.0 {
            // The service has not had the request, so it is no sample.
            ticket.started = None;
        }
        entry.0 = Stage::Nothing;
    }

    /// What a request holds is its place until the end, whatever its response says.
    fn settle(&self, _: &K, _: &mut InFlightEntry, _: SettlePart<'_>) -> Option<Settling> {
        None
    }

    fn limits(&self, _: &K) -> usize {
        1
    }

    fn policies(&self, _: &K, decision: Decision, told: Told<'_>) {
        let limit = decision.limit;
        let make = |name: &str| Policies::at_once(name, limit);
        told(None, &self.state.policies(limit, &make), &decision);
    }
}

impl<K: Hash, Res, H: Hold<Res>, P: PermitSource<K>> Exit<K, Res> for InFlight<H, P> {
    type Response = H::Response;

    #[inline]
    fn exit<E>(entry: InFlightEntry, result: Result<Res, E>) -> Result<H::Response, E> {
        InFlight::<H>::exit_all([entry], result)
    }
}

impl<H, P> InFlight<H, P> {
    /// Asks for a permit.
    #[inline]
    fn enter<K>(
        &self,
        key: &K,
        ask: Ask,
        request: PermitRequest,
        entry: &mut InFlightEntry,
        MayWait {
            seat,
            until,
            figures,
        }: MayWait<'_>,
    ) -> Poll<Result<Passed, RateLimited>>
    where
        P: PermitSource<K>,
    {
        if request.units == 0 {
            self.state.record(Event::Admitted(request.units), false);
            return Poll::Ready(Ok(Passed::AtOnce));
        }
        let Options {
            queue, max_wait, ..
        } = self.options;
        let table = &self.permits().table;
        let may_pass = self.permits().may_pass(request);
        let asks = P::ASKS && may_pass;
        // A request in shadow mode waits for no permit.
        let most = if ask.shadow { 0 } else { queue };
        let joined = if asks {
            if most > 0 && !seat.try_acquire() {
                return Poll::Ready(Err(self.deny(true, table.usage(request), false)));
            }
            match self.source.ask(key, self.permits(), request, most) {
                Ok(joined) => joined,
                Err(error) => return Poll::Ready(self.fail(ask, error)),
            }
        } else if may_pass {
            match table.try_take(request) {
                Ok(usage) => Joined::Taken(usage),
                Err(_) if most > 0 && seat.try_acquire() => {
                    table.take_or_join(request, most, |_| {})
                }
                Err(usage) => Joined::Full(usage),
            }
        } else {
            Joined::Full(table.usage(request))
        };
        match joined {
            Joined::Taken(usage) => {
                self.state.record(Event::Admitted(request.units), false);
                self.pass(self.permit(request), usage, ask, figures, entry);
                Poll::Ready(Ok(Passed::AtOnce))
            }
            Joined::Waits(queued, usage) => {
                let longest = if asks {
                    max_wait.saturating_add(self.source.failure().0)
                } else {
                    self.record_waited(usage, false);
                    max_wait
                };
                let left = until.since(MonotonicClock.now());
                entry.0 = Stage::Waits(PermitWait {
                    place: WaiterPlace::new(Arc::clone(self.permits()), request, queued),
                    sleep: None,
                    max_wait: left.min(longest),
                });
                Poll::Pending
            }
            Joined::Full(_) if ask.shadow && !asks => {
                Poll::Ready(Ok(self.pass_in_shadow(ask, request, figures, entry)))
            }
            Joined::Full(usage) => Poll::Ready(Err(self.deny(may_pass, usage, false))),
        }
    }

    fn poll_wait<K>(
        &self,
        ask: Ask,
        entry: &mut InFlightEntry,
        figures: &mut Option<Decision>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Passed, RateLimited>>
    where
        P: PermitSource<K>,
    {
        let Stage::Waits(wait) = &mut entry.0 else {
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
        entry.0 = Stage::Nothing;
        let permit = match ended {
            Ok(permit) => permit,
            Err(End::Failed) => return Poll::Ready(self.fail(ask, self.source.failure().1)),
            Err(_) if ask.shadow => {
                return Poll::Ready(Ok(self.pass_in_shadow(ask, request, figures, entry)));
            }
            Err(_) => {
                // Its time is over, or a request of higher priority has its place.
                let limit = self.permits().table.usage(request).limit;
                let full = KeyUsage {
                    in_flight: limit,
                    limit,
                };
                return Poll::Ready(Err(self.deny(true, full, false)));
            }
        };
        let usage = permit.usage();
        if P::ASKS {
            self.state.record(Event::Admitted(request.units), false);
        }
        self.pass(permit, usage, ask, figures, entry);
        Poll::Ready(Ok(Passed::Waited))
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
