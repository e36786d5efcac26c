//! The port of what a machine of a fleet does by rules of its own.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::link::StoreLink;
use super::pending::{Listed, PendingKeys};
use super::slow::Slow;
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::error::{ConfigError, StoreError};
use crate::store::{cas::CasStore, events::RemoteMetrics};

/// A machine that decides in memory, and exchanges reports with a store in the background.
pub(in crate::store) trait Machine: Send + Sync + Sized + 'static {
    type Store: CasStore;
    type Algorithm: Portable;
    type Key: Listed + Send;
    /// A report to be sent.
    type Outgoing: Send + Sync + 'static;
    /// How far the task is with the keys that are due.
    type Progress: Default + Send;

    /// How often it is tried to exchange all that is left.
    const FLUSHES: u32;

    fn link(&self) -> &StoreLink<Self::Store, Self::Algorithm>;

    /// Keys with something to exchange.
    fn keys(&self) -> &PendingKeys<Self::Key>;

    /// The present moment, by the time of the fleet.
    fn now(&self) -> Tick;

    fn algorithm(&self) -> Self::Algorithm;

    fn set_algorithm(&self, algorithm: &Self::Algorithm) -> Result<(), ConfigError>;

    /// Decides on a request that needs more than the state in the table.
    fn decide_slow(
        self: &Arc<Self>,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        cost: u64,
    ) -> Result<Slow, StoreError>;

    /// Sends one report, and goes on with the reply.
    fn exchange(
        &self,
        outgoing: &Self::Outgoing,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends an exchange whose outcome is not known.
    fn give_up(&self, outgoing: &Self::Outgoing, error: &StoreError);

    /// How long the task waits between two ticks, without jitter.
    fn tick_length(&self) -> Duration;

    /// The machine is cut off after so many ticks without a reply.
    fn cut_off_after(&self) -> u32;

    /// Begins a tick, before anything that waits for the store.
    fn begin_tick(&self);

    /// Takes at most `most` reports to be sent.
    fn collect_due(
        &self,
        progress: &mut Self::Progress,
        is_tick: bool,
        most: usize,
    ) -> Vec<Self::Outgoing>;

    /// Takes all reports that are left.
    fn collect_rest(&self) -> Vec<Self::Outgoing>;

    /// Ends the exchanges that are under way when the limiter is closed.
    fn end_exchanges(exchanges: JoinSet<()>) -> impl Future<Output = ()> + Send;

    /// How long the oldest change has waited that the store may not have.
    fn lag(&self) -> Duration;

    /// Sets the metric of the lag.
    fn report_lag(metrics: RemoteMetrics, lag: Duration);
}
