//! Limits of a fleet by budgets: each machine decides in memory over units that the store has granted.
//!
//! Once per interval a machine reports what it has used and how much was asked of it. The store charges
//! what was used and grants units by the machine's part of the fleet's demand. It keeps what is *used*
//! apart from what is *out*: granted and not yet reported. The two together never exceed the limit when
//! units are granted, and time lowers only what is used. So nothing is refilled in place of a unit that
//! a machine still holds, and the fleet keeps the promise of the algorithm (`Leased`). If the refill of
//! the coming interval is granted as well (`Synced`), the fleet exceeds it by that at most.
//!
//! A grant lapses after one to two lives. What is still out then counts as used as of that moment: a
//! machine that crashes costs at most what it held, once.

mod batch;
mod cas;
mod exchange;
mod future;
mod keys;
mod limiter;
mod machine;
mod node;
mod record;
mod shape;
mod shaped;
#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod simulation;

pub use self::{
    batch::{Batch, Replies, Write},
    future::FleetFuture,
    limiter::{Ahead, FleetBuilder, FleetCounts, FleetLimiter, Granted, Mode},
    shape::Shape,
    shaped::Shaped,
};

/// A limit of a fleet that may use what refills in the coming interval: no request waits where the limit is
/// larger than the fleet.
pub type Synced<S, A> = FleetLimiter<S, A, Ahead>;

/// Settings of a [`Synced`] limiter.
pub type SyncedBuilder<S> = FleetBuilder<S, Ahead>;

/// A limit of a fleet that never exceeds that of its algorithm.
pub type Leased<S, A> = FleetLimiter<S, A, Granted>;

/// Settings of a [`Leased`] limiter.
pub type LeasedBuilder<S> = FleetBuilder<S, Granted>;
