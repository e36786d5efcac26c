//! What the clones of a limiter and its task share: the machine, the store, and how exchanges go.

use std::time::Duration;

use super::clock::FleetClock;
use super::collect::Outgoing;
use super::node::Node;
use super::rules::Rules;
use crate::algorithm::Portable;
use crate::clock::{Tick, nanos, unix_now};
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::{
        CasStore,
        decider::{Decider, MAX_TTL},
        exchange::Next,
        record::Record,
        report::{Change, Report},
    },
    fleet::{StoreLink, WhenCutOff},
};

/// Machines that have reported within so many intervals count as present.
pub(super) const PRESENT_INTERVALS: u32 = 10;

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) interval: Duration,
    pub(super) rules: Rules,
    pub(super) capacity: usize,
    pub(super) when_cut_off: WhenCutOff,
    /// After so many intervals without a reply.
    pub(super) cut_off_after: u32,
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let allowed = Duration::from_millis(1)..=Duration::from_secs(3_600);
        if !allowed.contains(&self.interval) {
            let interval = format!("{:?}", self.interval);
            return Err(ConfigError::out_of_range(
                "interval",
                interval,
                "1 ms to 1 hour",
            ));
        }
        if self.rules.strict_budget == Some(0) {
            return Err(ConfigError::out_of_range("strict_budget", 0, "1 or more"));
        }
        if self.rules.nodes == Some(0) {
            return Err(ConfigError::out_of_range("nodes", 0, "1 or more"));
        }
        if self.cut_off_after == 0 {
            return Err(ConfigError::out_of_range("intervals", 0, "1 or more"));
        }
        Ok(())
    }
}

pub(super) struct Fleet<S: CasStore, A: Portable> {
    pub(super) node: Node<A>,
    pub(super) clock: FleetClock,
    pub(super) settings: Settings,
    pub(super) link: StoreLink<S, A>,
}

impl<S: CasStore, A: Portable> Fleet<S, A> {
    pub(super) fn new(
        store: S,
        prefix: &str,
        name: &str,
        algorithm: &A,
        settings: Settings,
    ) -> Result<Self, ConfigError> {
        // A reply that is later than the next interval would delay the one after it.
        let deadline = settings
            .interval
            .clamp(Duration::from_millis(50), Duration::from_secs(1));
        let clock = FleetClock::of_this_machine();
        let link = StoreLink::new(store, [prefix, name, ""], algorithm, deadline)?;
        Ok(Self {
            node: Node::new(algorithm.clone(), settings.rules, &clock, settings.capacity)?,
            clock,
            settings,
            link,
        })
    }

    /// What happens instead of a decision of the fleet, while the store cannot be reached.
    pub(super) fn cut_off(&self) -> Option<WhenCutOff> {
        self.link.cut_off(self.settings.when_cut_off)
    }

    /// The error of a request while the store cannot be reached.
    pub(super) fn cut_off_error(&self) -> StoreError {
        let intervals = self.settings.cut_off_after;
        self.link
            .cut_off_error(format_args!("{intervals} intervals"))
    }

    /// Makes the report a part of the record that the store holds. Returns the state in that record,
    /// and how many machines have reported lately.
    pub(super) async fn send(
        &self,
        decider: &Decider<A>,
        outgoing: &Outgoing,
    ) -> Result<(A::State, usize), StoreError> {
        let replaces = outgoing.changes.contains(&Change::Reset);
        let learn = |_, server_time: Option<Tick>| {
            self.clock.learn(server_time.unwrap_or_else(unix_now));
            self.node.set_time_known();
        };
        let present = self.settings.interval * PRESENT_INTERVALS;
        let shared = self.link.shared();
        let step = |record: &Record, now: Tick| {
            let report = Report {
                node: self.node.id,
                sequence: outgoing.sequence,
                changes: &outgoing.changes,
                present_since: Tick::from_nanos(now.as_nanos().saturating_sub(nanos(present))),
                clocks_differ: !shared.store.has_one_clock() || shared.time.is_of_this_machine(),
            };
            let reported = decider.report(record, now, &report)?;
            let record = reported.record.map(|record| {
                // Costs that are reported later may be of a moment before the state was forgettable.
                let ttl = Decider::<A>::time_to_live(&record, now) + present;
                (record, ttl.min(MAX_TTL))
            });
            let reply = (reported.state, reported.nodes);
            Ok(Next { reply, record })
        };
        let exchanger = &self.link.exchanger;
        exchanger
            .exchange(&outgoing.name, replaces, learn, step)
            .await
    }
}
