//! What the services, clones and handles of one layer share.

use std::{collections::VecDeque, fmt, ops::Deref, sync::Arc, time::Duration};

use super::adaptive::Adaptive;
use super::claim::{Claim, Usage};
use super::controller::{Controller, factory};
use super::key_limits::{KeyLimits, KeySettings};
use super::table::Table;
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, RateLimited};
use crate::layer::{Counters, Signals};
use crate::queue::WhenFull;
use crate::respond::{Policies, ResponseHooks};
use crate::sync::Swap;

/// Shared by a layer, its services and its handles, and by its clones unless they are renamed.
pub(super) struct State {
    shared: Arc<Shared>,
    pub(super) signals: Signals,
    name: Arc<str>,
    /// What clients are told of the limits that were told last, at most [`KEPT_POLICIES`]: priorities and
    /// keys may have limits of their own.
    policies: Swap<VecDeque<(u64, Arc<Policies>)>>,
}

/// What belongs to the limit, whatever a layer calls it.
pub(super) struct Shared {
    pub(super) table: Table,
    /// Changes the limit of the table, if that is adaptive.
    pub(super) controller: Option<Controller>,
    pub(super) counts: Counters,
}

const KEPT_POLICIES: usize = 16;

/// The settings of a layer that are plain values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) shadow: bool,
    /// Responses do not state the limit, whatever headers are set.
    pub(super) silent: bool,
    pub(super) when_full: WhenFull,
    /// How many requests of one key may wait.
    pub(super) queue: u32,
    pub(super) max_wait: Duration,
    pub(super) retry_after: Duration,
    /// Denied requests are told that the server is overloaded, not that they are too many.
    pub(super) unavailable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shadow: false,
            silent: false,
            when_full: WhenFull::default(),
            queue: 0,
            max_wait: Duration::from_secs(1),
            retry_after: Duration::from_secs(1),
            unavailable: false,
        }
    }
}

/// Refuses a limit that nothing would ever pass.
pub(super) fn checked_limit(limit: u32) -> Result<u64, ConfigError> {
    if limit == 0 {
        let allowed = "a number from 1 to 4294967295";
        return Err(ConfigError::out_of_range("limit", limit, allowed));
    }
    Ok(limit.into())
}

impl State {
    pub(super) fn new(limit: u64) -> Self {
        Self::with(Table::new(limit, None), None)
    }

    /// A state whose limit follows latency.
    pub(super) fn adaptive(algorithm: impl Adaptive) -> Self {
        let (controller, limit) = Controller::new(algorithm);
        Self::with(Table::new(limit, None), Some(controller))
    }

    /// A state with a limit per key that follows latency.
    pub(super) fn adaptive_per_key(algorithm: impl Adaptive, settings: KeySettings) -> Self {
        let (make, start, load) = factory(algorithm);
        let limits = KeyLimits::new(make, load, settings);
        Self::with(Table::new(start, Some(limits)), None)
    }

    /// Whether the limit follows latency.
    #[inline]
    pub(super) fn is_adaptive(&self) -> bool {
        self.controller.is_some() || self.table.key_limits.is_some()
    }

    fn with(table: Table, controller: Option<Controller>) -> Self {
        Self {
            shared: Arc::new(Shared {
                table,
                controller,
                counts: Counters::new(),
            }),
            signals: Signals::default(),
            name: "default".into(),
            policies: Swap::default(),
        }
    }

    /// The same limit under another name.
    #[track_caller]
    pub(super) fn renamed(&self, name: &str) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            signals: self.signals.renamed(name),
            name: name.into(),
            policies: Swap::default(),
        }
    }

    /// The limit as clients are told it.
    pub(super) fn policies(&self, limit: u64) -> Arc<Policies> {
        let known = self.policies.read(|kept| {
            let known = kept.iter().find(|known| known.0 == limit);
            known.map(|(_, policies)| Arc::clone(policies))
        });
        known.unwrap_or_else(|| {
            let policies = Arc::new(Policies::at_once(&self.name, limit));
            self.policies.update(|kept| {
                kept.truncate(KEPT_POLICIES - 1);
                kept.push_front((limit, Arc::clone(&policies)));
            });
            policies
        })
    }

    /// Whether a request is ever to pass. One of more units than the limit is refused for good, unless
    /// the limit is adaptive: that may rise, or stay low for long, so the request passes when it is
    /// alone.
    #[inline]
    pub(super) fn may_pass(&self, claim: Claim) -> bool {
        claim.units <= claim.priority.part_of(self.table.limit()) || self.is_adaptive()
    }

    /// The decision on a request, itself in flight if it goes on.
    pub(super) fn decision(verdict: Verdict, usage: Usage) -> Decision {
        let Usage { in_flight, limit } = usage;
        Decision::new(verdict, limit, limit.saturating_sub(in_flight), None, 0)
    }

    /// Counts a request that goes on at once. Returns whether it is one of a sample.
    #[inline]
    pub(super) fn record_admitted(&self) -> bool {
        self.signals.record_admitted();
        self.counts.record_admitted()
    }

    /// Counts a request that waits.
    #[cold]
    pub(super) fn record_waited(&self, usage: Usage, options: &Options) {
        let decision = Self::decision(Verdict::Wait(options.max_wait), usage);
        self.counts.record_waited(options.shadow);
        self.signals.record_waited(&decision, options.shadow);
    }

    /// Counts a request that is denied, and returns the reason. `may_pass` tells whether it may pass
    /// later.
    #[cold]
    pub(super) fn deny(&self, may_pass: bool, usage: Usage, options: &Options) -> RateLimited {
        let mut decision = Self::decision(Verdict::Deny, usage);
        decision.retry_after = may_pass.then_some(options.retry_after);
        self.counts.record_denied(options.shadow);
        self.signals.record_denied(&decision, options.shadow);
        RateLimited::concurrent(decision, options.unavailable).by(Arc::clone(&self.name))
    }

    /// The answer to a denied request, with what the response says about the limit.
    #[inline(never)]
    pub(super) fn refuse<R, Req, Res, Err>(
        &self,
        respond: &R,
        request: Req,
        denied: RateLimited,
    ) -> Result<Res, Err>
    where
        R: ResponseHooks<Req, (), Res, Err>,
    {
        let decision = denied.decision().copied();
        let mut answer = respond.refuse(request, denied);
        if let (true, Some(decision), Ok(response)) = (R::WRITES_HEADERS, decision, &mut answer) {
            respond.tell(response, &self.policies(decision.limit), &decision);
        }
        answer
    }
}

impl Deref for State {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("name", &self.name)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
