//! The gate of a limit on concurrency: permits, and the lines of the requests that wait for one.

use std::{
    fmt,
    hash::Hash,
    marker::PhantomData,
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use http::Response;
use http_body::Body;

use super::adaptive::RequestEnd;
use super::body::PermitBody;
use super::hold::{UntilBodyEnds, UntilResponse, hold, outcome};
use super::keep::HeldPermits;
use super::line::PermitsOfKey;
use super::permit::Permit;
use super::permits::Permits;
use super::request::{KeyUsage, PermitRequest, Reserve, reserved};
use super::source::{InProcess, PermitSource};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, StoreError};
use crate::layer::{
    Ask, AtGate, Enter, Entering, Exit, Gate, Limiting, Look, OnStoreError, Progress, State, Told,
    rename,
};
use crate::queue::{Joined, Order, Place};
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
    pub(super) reserve: Reserve,
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

/// What a request has of a limit on concurrency: nothing yet, a place in line, or its permit.
#[derive(Debug, Default)]
pub struct InFlightEntry(Stage);

#[derive(Debug, Default)]
enum Stage {
    /// It has not asked.
    #[default]
    New,
    Waits(Place, PermitRequest),
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
                reserve: (u8::MAX, 0),
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
        PermitRequest {
            order: self.options.order,
            reserved: reserved(self.options.reserve, ask.weight.priority),
            ..self
                .permits()
                .request(key, ask.weight.cost, ask.weight.priority)
        }
    }

    fn permit(&self, request: PermitRequest) -> Permit {
        Permit::new(Arc::clone(self.permits()), request)
    }

    #[cold]
    fn fail(&self, ask: Ask, error: StoreError) -> Result<(), RateLimited> {
        self.state.record(Event::StoreError(&error), false);
        let allow = self.options.on_store_error == OnStoreError::Allow && error.is_transient();
        if !allow && !ask.shadow {
            return Err(RateLimited::unavailable(error));
        }
        Ok(())
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

    fn leave(&self, key: &K, entry: &mut InFlightEntry) {
        self.at(key, entry).leave();
    }
}

impl<K: Hash, H, P: PermitSource<K>> Enter<K> for InFlight<H, P> {
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

    fn progress(&mut self) -> Progress {
        match self.stage {
            Stage::New => Progress::New,
            Stage::Waits(..) => Progress::Waits,
            Stage::Has(_) | Stage::Nothing => Progress::Passed,
        }
    }

    #[inline]
    fn poll_enter(
        &mut self,
        mut entering: Entering<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<(), RateLimited>> {
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
        match mem::replace(self.stage, Stage::Nothing) {
            Stage::Waits(queued, request) => self.gate.permits().leave(request, queued),
            // The service has not had the request, so it is no sample.
            Stage::Has(mut ticket) => ticket.started = None,
            Stage::New | Stage::Nothing => {}
        }
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

impl<K: Hash, B: Body, P: PermitSource<K>> Exit<K, Response<B>> for InFlight<UntilBodyEnds, P> {
    type Response = Response<PermitBody<B>>;

    #[inline]
    fn exit<E>(entry: InFlightEntry, result: Result<Response<B>, E>) -> Result<Self::Response, E> {
        <InFlight>::hold_all([entry], result)
    }
}

impl<K: Hash, Res, P: PermitSource<K>> Exit<K, Res> for InFlight<UntilResponse, P> {
    type Response = Res;

    #[inline]
    fn exit<E>(entry: InFlightEntry, result: Result<Res, E>) -> Result<Res, E> {
        drop(released([entry], &result, |_| RequestEnd::Success));
        result
    }
}

impl InFlight {
    /// Moves the permits of several limits into the response, or releases them.
    #[inline]
    pub(crate) fn hold_all<B: Body, E>(
        entries: impl IntoIterator<Item = InFlightEntry>,
        result: Result<Response<B>, E>,
    ) -> Result<Response<PermitBody<B>>, E> {
        let held = released(entries, &result, outcome);
        result.map(|response| hold(response, held))
    }
}

/// The permits of a request that has ended.
#[inline]
fn released<Res, E>(
    entries: impl IntoIterator<Item = InFlightEntry>,
    result: &Result<Res, E>,
    outcome: impl Fn(&Res) -> RequestEnd,
) -> HeldPermits {
    let permits = entries.into_iter().filter_map(|entry| {
        let Stage::Has(mut ticket) = entry.0 else {
            return None;
        };
        ticket.record(|| result.as_ref().map_or(RequestEnd::Dropped, &outcome));
        ticket.permit.take()
    });
    permits.collect()
}

impl<K: Hash, H, P: PermitSource<K>> AtInFlight<'_, K, H, P> {
    /// Asks for a permit.
    #[inline]
    fn enter(&mut self, entering: &mut Entering<'_>) -> Poll<Result<(), RateLimited>> {
        let (gate, ask) = (self.gate, entering.ask);
        let request = gate.request(self.key, ask);
        if request.units == 0 {
            gate.state.record(Event::Admitted, false);
            return Poll::Ready(Ok(()));
        }
        let (permits, options) = (gate.permits(), gate.options);
        let may_pass = permits.may_pass(request);
        let none_waits = permits.lines.waiting() == 0;
        let taken = (may_pass && none_waits).then(|| permits.table.take(request));
        if let Some(Ok(usage)) = taken {
            return self.admit(request, usage, entering);
        }
        // A request in shadow mode waits for no permit.
        let queues = options.queue > 0 && !ask.shadow;
        let may_wait = may_pass && queues && entering.seat.try_acquire();
        let joins = may_wait || if P::ASKS { !queues } else { !none_waits };
        if !may_pass || !joins {
            return self.refuse(may_pass, request, entering);
        }
        let longest = options.max_wait.saturating_add(gate.source.failure().0);
        let until = MonotonicClock.now().plus(longest).min(entering.until);
        let most = match may_wait {
            // Those for which there is no room are denied once the store has answered.
            _ if P::ASKS => u64::MAX,
            true => options.queue.into(),
            false => 0,
        };
        let of_key = || PermitsOfKey {
            permits: Arc::clone(permits),
            id: request.id,
            reserve: options.reserve,
        };
        let (id, weight, order) = (request.id, request.weight(), request.order);
        let queued = match permits.lines.join(id, of_key, weight, order, most, until) {
            Joined::Waits(queued, _) => queued,
            Joined::Denied(_) => return self.refuse(may_pass, request, entering),
            Joined::Taken(_) => {
                let usage = permits.table.usage(request);
                return self.admit(request, usage, entering);
            }
        };
        if P::ASKS {
            let queue = if ask.shadow { 0 } else { options.queue };
            let line = (queue, options.reserve);
            if let Err(error) = gate.source.ask(self.key, permits, request, line) {
                permits.leave(request, queued);
                return Poll::Ready(gate.fail(ask, error));
            }
        } else {
            gate.state.record(Event::Waits(None), false);
        }
        *self.stage = Stage::Waits(queued, request);
        Poll::Pending
    }

    /// Lets a request go on that has found room.
    #[inline]
    fn admit(
        &mut self,
        request: PermitRequest,
        usage: KeyUsage,
        entering: &mut Entering<'_>,
    ) -> Poll<Result<(), RateLimited>> {
        let gate = self.gate;
        gate.state.record(Event::Admitted, false);
        self.pass(gate.permit(request), usage, entering);
        Poll::Ready(Ok(()))
    }

    /// Denies a request that has found none, unless it is in shadow mode.
    fn refuse(
        &mut self,
        may_pass: bool,
        request: PermitRequest,
        entering: &mut Entering<'_>,
    ) -> Poll<Result<(), RateLimited>> {
        if entering.ask.shadow {
            self.pass_in_shadow(request, entering);
            return Poll::Ready(Ok(()));
        }
        let usage = self.gate.permits().table.usage(request);
        Poll::Ready(Err(self.gate.deny(may_pass, usage, false)))
    }

    fn poll_wait(
        &mut self,
        entering: &mut Entering<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), RateLimited>> {
        let (gate, ask) = (self.gate, entering.ask);
        let Stage::Waits(queued, request) = &*self.stage else {
            return Poll::Pending;
        };
        let (permits, request) = (gate.permits(), *request);
        let ended = ready!(permits.lines.poll(request.id, *queued, cx.waker()));
        *self.stage = Stage::Nothing;
        match ended {
            Ok(_) => {}
            Err(None) => return Poll::Ready(gate.fail(ask, gate.source.failure().1)),
            Err(Some(_)) => {
                // Its time is over, or a request of higher priority has its place.
                permits.table.wake_keeper(request.id);
                if ask.shadow {
                    self.pass_in_shadow(request, entering);
                    return Poll::Ready(Ok(()));
                }
                let limit = permits.table.usage(request).limit;
                let full = KeyUsage {
                    in_flight: limit,
                    limit,
                };
                return Poll::Ready(Err(gate.deny(true, full, false)));
            }
        }
        let permit = gate.permit(request);
        let usage = permit.usage();
        if P::ASKS {
            gate.state.record(Event::Admitted, false);
        }
        self.pass(permit, usage, entering);
        Poll::Ready(Ok(()))
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
    fn pass_in_shadow(&mut self, request: PermitRequest, entering: &mut Entering<'_>) {
        let gate = self.gate;
        let usage = gate.permits().table.take_anyway(request);
        // The requests beyond the limit are those that would wait.
        let may_wait = usage.limit.saturating_add(gate.options.queue.into());
        let may_pass = gate.permits().may_pass(request);
        if may_pass && usage.in_flight <= may_wait {
            gate.state.record(Event::Waits(None), true);
        } else {
            gate.deny(may_pass, usage, true);
        }
        self.pass(gate.permit(request), usage, entering);
    }
}

impl Ticket {
    /// Tells the limit how the request has ended, if it is adaptive.
    #[inline]
    fn record(&mut self, outcome: impl FnOnce() -> RequestEnd) {
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
            self.record(|| RequestEnd::Cancelled);
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
