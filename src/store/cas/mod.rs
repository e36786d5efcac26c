//! One exact limit for many machines, in any store with a compare-and-swap.
//!
//! The algorithm runs in this process, on the state that the store holds. The new state replaces the
//! old one only if no other machine has replaced it meanwhile. So no algorithm is written again for
//! a store, and every one works: also tuples, [`All`](crate::All) and
//! [`AnyAlgorithm`](crate::AnyAlgorithm).
//!
//! [`CasStore`] is the port to a store of your own: a read and a conditional write.
//! [Extending](crate::guide::extending#a-store) shows one with its check.
//!
//! # How a call is decided
//!
//! Calls for one key that wait at the same time are decided together, in their order, and written in
//! one swap. One swap per key is in flight at a time in this process, so only machines are in
//! conflict with each other, not requests. The state that was last written is kept: as long as no
//! other machine changes the key, a decision is one round trip, or two if the limit was not used for ten
//! seconds. A swap that finds another version is decided again on what the store holds, until the deadline.
//!
//! Machines take turns at a key that several swap: each waits at random in a window that doubles with its
//! conflicts and halves with its successes, and takes along all calls that come meanwhile. So the store's
//! work does not grow with the number of machines, but the time until a machine has its turn does: give a
//! key that many machines use at the same time a [deadline](Cas::deadline) of some round trips per
//! machine.
//!
//! A denial is confirmed by a read, and writes nothing. It answers all calls that have queued for it, and is then
//! repeated without asking the store until it ends, as [`Cas::without_deny_cache`] describes.
//!
//! # Failure
//!
//! A call ends within the [deadline](Cas::deadline), on every runtime, with a decision or with
//! a [`StoreError`](crate::StoreError) that says whether it is transient. If a swap fails, the store
//! may have executed it. Each swap has a version of its own, and a value names the last eight: the
//! next read shows whether it was executed, and it is sent again only if it was not. So a cost is
//! never counted twice. If the key was swapped more often meanwhile, the call fails: it was counted
//! once or not at all. The same is true of a call that gets no reply where the store runs it in one step.
//!
//! After three failures in a row the circuit breaker opens, as in Redis: calls fail at once until a
//! probe gets a reply. A permanent error closes the breaker: it is a mistake, not an outage. So does an error of one key,
//! such as a row that is locked.
//!
//! # Time
//!
//! All machines decide by the store's clock, if it reports its time: between two replies it is computed,
//! and a decision is dated between its request and its reply. Otherwise each machine uses its own clock. A machine whose
//! clock is ahead by `e` grants what refills in `e` once more, and the others deny for up to `e` longer.
//!
//! # What is stored
//!
//! One value per limit and key, named `{prefix:limit:key}` (see
//! [`RemoteKey`](crate::store::remote::RemoteKey)) and the layout of the value, such as `bucket/1s.4`: what was used,
//! with the settings of the limit that has counted it. It is kept until it decides like an unused key, and a tenth and
//! a second longer, but for at most 20 years.
//!
//! Machines may use different limits under one name, as in a rolling deploy. If the layout is the same, they share the
//! value: windows, grids and logs together admit the larger limit, and buckets at most the larger burst and what the
//! faster one refills. A refund of a cost c by a machine with the limit L, beside one with L' > L, may give back up to
//! c (1 - L/L') too much. Another period, offset, number of cells or algorithm is another layout: together both admit at
//! most the sum, and no key is denied because of the change. The layout of `Gcra` is the time of a unit. A reset
//! concerns the layout of its limiter only.
//!
//! A key with a [quota of its own](crate::store::Quotas) has one value for all its quotas of one period.

mod backend;
mod calls;
#[cfg(feature = "cassandra")]
pub mod cassandra;
pub(super) mod contention;
pub(super) mod decider;
mod driver;
pub(super) mod error;
mod faulty;
mod inner;
mod keeper;
mod lanes;
mod leases;
mod memory;
mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
pub(super) mod record;
mod settings;
pub(super) mod shared;
pub(super) mod swap;
mod time;
#[cfg(not(feature = "redis"))]
mod unscripted;
mod value;

#[cfg(feature = "redis")]
pub(super) use self::calls::{Calls, Decided};
pub(super) use self::settings::expect_unused;
#[cfg(not(feature = "redis"))]
use self::unscripted::Kernels;
pub use self::{
    backend::Cas,
    faulty::{Fault, Faulty},
    memory::MemoryStore,
    port::{CasStore, Program, Runs},
    settings::Settings,
    value::{Loaded, Swapped, Value, Write},
};
pub(crate) use self::{
    keeper::{Bell, LeaseHolder, Leases},
    leases::{LeasePlan, LeaseView},
};
#[cfg(feature = "redis")]
use super::redis::Kernels;
