//! What the machines of [`synced`](super::synced) and of [`lease`](super::lease) limits have in common.
//!
//! Both decide in memory, and a task exchanges reports with the store in the background. What a report
//! says and when one is due is the rule of each: they implement [`Machine`].

mod clock;
mod exchange_limit;
mod future;
mod link;
mod machine;
mod pending;
mod quota;
#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
pub(super) mod simulation;
mod slow;
mod task;
mod under_way;

pub use self::link::WhenCutOff;
pub(super) use self::{
    clock::MovedClock,
    future::FleetFuture,
    link::StoreLink,
    machine::Machine,
    pending::{Listed, PendingKey, PendingKeys, Place, SentReport, Shard, total_cost},
    quota::set_quota,
    slow::{Read, Slow, Written},
    task::{Owner, ensure_running},
    under_way::flush,
};
