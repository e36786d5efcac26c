//! What the clones of a limiter and its task share: the machine, the store, and how exchanges go.

use std::time::Duration;

use super::clock::LeaseClock;
use super::exchange::Outgoing;
use super::node::Node;
use super::plan::Settings;
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::{CasStore, decider::Decider, exchange::Next, lease::LeaseReply, report::Change},
    fleet::{StoreLink, WhenCutOff},
};

pub(super) struct Fleet<S: CasStore, A: Portable> {
    pub(super) node: Node<A>,
    pub(super) clock: LeaseClock,
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
        let deadline = settings
            .renewal()
            .clamp(Duration::from_millis(50), Duration::from_secs(1));
        let clock = LeaseClock::of_store(store.has_one_clock());
        // Records of limits that are not leased do not say which units are out.
        let link = StoreLink::new(store, [prefix, name, "+leases"], algorithm, deadline)?;
        Ok(Self {
            node: Node::new(algorithm.clone(), settings.clone(), &clock)?,
            clock,
            settings,
            link,
        })
    }

    /// What happens instead of a decision, while the store cannot be reached.
    pub(super) fn cut_off(&self) -> Option<WhenCutOff> {
        self.link.cut_off(self.settings.when_cut_off)
    }

    /// The error of a request while the store cannot be reached.
    pub(super) fn cut_off_error(&self) -> StoreError {
        let length = self.settings.tick() * self.settings.cut_off_after;
        self.link.cut_off_error(format_args!("{length:?}"))
    }

    /// Sets `may_be_stored` before the report may reach the store.
    pub(super) async fn send(
        &self,
        decider: &Decider<A>,
        outgoing: &Outgoing,
        may_be_stored: &mut bool,
    ) -> Result<LeaseReply<A::State>, StoreError> {
        let replaces = outgoing.sent.changes.contains(&Change::Reset);
        let learn = |sent_at, server_time| self.clock.learn(sent_at, server_time);
        let step = |record: &_, now: Tick| {
            let report = self.node.report(outgoing, now);
            // A swap before it found another version.
            *may_be_stored = false;
            let (reply, record) = decider.lease(record, now, &report)?;
            *may_be_stored = record.is_some();
            let record = record.map(|record| {
                let ttl = Decider::<A>::time_to_live(&record, now);
                (record, ttl)
            });
            Ok(Next { reply, record })
        };
        let name = &outgoing.name;
        let exchanger = &self.link.exchanger;
        exchanger.exchange(name, replaces, learn, step).await
    }
}
