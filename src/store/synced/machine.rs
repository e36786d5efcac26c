//! What the task of a synced limit does, and when.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::collect::{Due, Outgoing};
use super::decide::decide_slow;
use super::fleet::Fleet;
use crate::algorithm::{Inherit, Portable};
use crate::clock::{Clock, Tick};
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::CasStore,
    events::RemoteMetrics,
    fleet::{Machine, PendingKey, PendingKeys, Slow, StoreLink},
};
use crate::sync::Ordering;

impl<S: CasStore, A: Portable> Machine for Fleet<S, A> {
    type Store = S;
    type Algorithm = A;
    type Key = PendingKey;
    type Outgoing = Outgoing;
    /// Whether reports of this interval are left.
    type Progress = bool;

    const FLUSHES: u32 = 3;

    fn link(&self) -> &StoreLink<S, A> {
        &self.link
    }

    fn keys(&self) -> &PendingKeys {
        &self.node.pending
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
        match self.send(&policy.decider, outgoing).await {
            Ok((mut state, nodes)) => {
                self.link.done.fetch_add(1, Ordering::Relaxed);
                let now = self.clock.now();
                let (current, decided_by) = (self.node.algorithm(), &policy.decider.algorithm);
                if current.quota() != decided_by.quota() {
                    current.rescale(&mut state, decided_by, now, Inherit::AsIs);
                }
                self.node.adopt(outgoing.hash, now, &state, nodes);
                Ok(())
            }
            Err(error) => {
                self.link.count_failed(&error);
                self.give_up(outgoing, &error);
                Err(error)
            }
        }
    }

    /// The same report is sent again.
    fn give_up(&self, outgoing: &Outgoing, error: &StoreError) {
        self.node.fail(outgoing.hash, self.clock.now(), error);
    }

    fn tick_length(&self) -> Duration {
        self.settings.interval
    }

    fn cut_off_after(&self) -> u32 {
        self.settings.cut_off_after
    }

    /// Adopts the number of machines.
    fn begin_tick(&self) {
        // Shares exist for every number of machines.
        let _ = self.node.end_round();
    }

    fn collect_due(&self, has_more: &mut bool, is_tick: bool, most: usize) -> Vec<Outgoing> {
        if is_tick && !*has_more {
            self.node.begin_round();
            *has_more = true;
        }
        let due = if *has_more { Due::Round } else { Due::Urgent };
        let outgoing = self.node.collect(self.clock.now(), due, most);
        *has_more &= outgoing.len() == most;
        outgoing
    }

    fn collect_rest(&self) -> Vec<Outgoing> {
        let now = self.clock.now();
        self.node.collect(now, Due::All, usize::MAX)
    }

    /// Their reports are sent again at once.
    async fn end_exchanges(exchanges: JoinSet<()>) {
        drop(exchanges);
    }

    fn lag(&self) -> Duration {
        let now = self.clock.now();
        let mut longest = Duration::ZERO;
        for shard in self.node.pending.shards() {
            for (&hash, key) in shard.iter() {
                let waited = now.since(key.since);
                if waited > longest && self.node.is_in_use(hash, key, now) {
                    longest = waited;
                }
            }
        }
        longest
    }

    fn report_lag(metrics: RemoteMetrics, lag: Duration) {
        metrics.synced_lag(lag);
    }
}
