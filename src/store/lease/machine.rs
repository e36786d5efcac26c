//! What the task of a leased limit does, and when.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::decide::decide_slow;
use super::exchange::{Due, Outgoing};
use super::fleet::Fleet;
use super::key::LeaseKey;
use crate::algorithm::{Inherit, Portable};
use crate::clock::{Clock, Tick};
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::CasStore,
    events::RemoteMetrics,
    fleet::{Machine, PendingKeys, Place, Slow, StoreLink},
};
use crate::sync::Ordering;

impl<S: CasStore, A: Portable> Machine for Fleet<S, A> {
    type Store = S;
    type Algorithm = A;
    type Key = LeaseKey;
    type Outgoing = Outgoing;
    /// The next of the keys whose time has come, if more are left than could be exchanged.
    type Progress = Option<Place>;

    /// A report that is sent again is followed by one that returns the units.
    const FLUSHES: u32 = 4;

    fn link(&self) -> &StoreLink<S, A> {
        &self.link
    }

    fn keys(&self) -> &PendingKeys<LeaseKey> {
        &self.node.keys
    }

    fn now(&self) -> Tick {
        self.clock.now()
    }

    fn algorithm(&self) -> A {
        self.node.algorithm()
    }

    fn set_algorithm(&self, algorithm: &A) -> Result<(), ConfigError> {
        self.node.set_algorithm(algorithm)
    }

    fn decide_slow(
        self: &Arc<Self>,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        cost: u64,
    ) -> Result<Slow, StoreError> {
        decide_slow(self, hash, name, now, cost)
    }

    async fn exchange(&self, outgoing: &Outgoing) -> Result<(), StoreError> {
        let policy = self.link.policy.active();
        let mut may_be_stored = false;
        let sent = self.send(&policy.decider, outgoing, &mut may_be_stored);
        match sent.await {
            Ok(mut reply) => {
                self.link.done.fetch_add(1, Ordering::Relaxed);
                let now = self.clock.now();
                let (current, decided_by) = (self.node.algorithm(), &policy.decider.algorithm);
                if current.quota() != decided_by.quota() {
                    current.rescale(&mut reply.state, decided_by, now, Inherit::AsIs);
                }
                self.node.adopt(outgoing.hash, now, &reply);
                Ok(())
            }
            Err(error) => {
                self.link.count_failed(&error);
                if may_be_stored {
                    self.node.fail(outgoing.hash, &error);
                } else {
                    self.node.refuse(outgoing.hash, &error);
                }
                Err(error)
            }
        }
    }

    /// The same report is sent again.
    fn give_up(&self, outgoing: &Outgoing, error: &StoreError) {
        self.node.fail(outgoing.hash, error);
    }

    fn tick_length(&self) -> Duration {
        self.settings.tick()
    }

    fn cut_off_after(&self) -> u32 {
        self.settings.cut_off_after
    }

    fn begin_tick(&self) {
        if self.clock.was_suspended() {
            self.node.drop_units(self.clock.now());
        }
    }

    fn collect_due(&self, next: &mut Option<Place>, is_tick: bool, most: usize) -> Vec<Outgoing> {
        self.node.collect_due(self.clock.now(), next, is_tick, most)
    }

    /// Their units are given back.
    fn collect_rest(&self) -> Vec<Outgoing> {
        let now = self.clock.now();
        self.node.collect(now, Due::Return, usize::MAX)
    }

    /// They may be taking units, so they are not given up.
    async fn end_exchanges(mut exchanges: JoinSet<()>) {
        while exchanges.join_next().await.is_some() {}
    }

    fn lag(&self) -> Duration {
        let now = self.clock.now();
        let mut longest = Duration::ZERO;
        for shard in self.node.keys.shards() {
            let unsent = shard.values().filter(|key| {
                let has_changes = !key.pending.unsent.is_empty();
                has_changes
                    || key
                        .sent
                        .as_ref()
                        .is_some_and(|sent| !sent.changes.is_empty())
            });
            let lags = unsent.map(|key| now.since(key.pending.since));
            longest = longest.max(lags.max().unwrap_or_default());
        }
        longest
    }

    fn report_lag(metrics: RemoteMetrics, lag: Duration) {
        metrics.leased_lag(lag);
    }
}
