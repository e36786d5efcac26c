//! One exact limit for many machines, in a Redis server.
//!
//! The server decides calls in the order in which they arrive, on its own clock, by one script: every decision is one
//! round trip. Machines that share a limit together admit exactly what one machine would.
//!
//! What the script does not count, as a [`Lockout`](crate::Lockout), a [`WarmUp`](crate::WarmUp), a bucket with a debt
//! or steps, a log of more than 1,000, or an algorithm of your own, is decided in the process, on a state that is loaded
//! and swapped as [`Cas`](crate::store::cas::Cas) does. So is a set that contains one of these. Nothing has to be said
//! for it.
//!
//! ```no_run
//! use tower_throttle::{Quota, SlidingWindow, store::{Backend, redis::Redis}};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = Redis::open("redis://127.0.0.1:6379")?;
//! let limiter = redis.limiter("pay", SlidingWindow::new(Quota::per_hour(1_000)));
//! if limiter.decide("tenant 7", 1).await?.is_admitted() {
//!     println!("go");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Redis::check`] reports what is wrong with a server before the first request does: a missing
//! permission, a cluster without its client, eviction.
//!
//! # What is stored
//!
//! One Redis key per limit and key, `{prefix:policy:key}` (see
//! [`RemoteKey`](crate::store::remote::RemoteKey)) and the layout of its value, such as `bucket/1s`. The value counts
//! what was used, in units, and does not say what the limit is. A Redis key expires when the limit that wrote it would
//! decide the same without it, up to 10.1 seconds later, so unused keys disappear. A denied request writes nothing.
//!
//! Machines may use different settings under one policy name, as in a rolling deploy. If these differ in the limit
//! alone, they share the value: windows, grids and logs together admit the larger limit, and buckets at most the larger
//! burst and what the faster one refills. A refund of a cost c by a machine with the limit L, beside one with L' > L, may
//! give back up to c (1 - L/L') too much. A lowered limit alone denies for at most ten seconds longer than the old one did,
//! and for what is charged under it. Another period, offset, number of cells or algorithm is another layout, and so is a log
//! of more than 1,000 beside a smaller one: together both admit at most the sum, and no key is denied because of the change.
//! The layout of `Gcra` is the time of a unit.
//!
//! A key with a [quota of its own](crate::store::Quotas) has one value for all its quotas of one period.
//!
//! # Clusters
//!
//! All keys of a call are in one slot. A plain client, as of [`Redis::open`], works in a cluster of
//! one master, where calls are not batched. For several masters use [`Redis::with_cluster`].
//!
//! # Speed
//!
//! Calls in flight at the same time share a script call, and those that repeat one on the same key are one step of it. A
//! single call costs hardly more than a minimal script. `cargo run --release -p compare -- redis` compares both on your
//! machine.
//!
//! # Numbers
//!
//! Redis counts microseconds, and its script is exact up to 2^53. Waits are rounded up to a microsecond, and cells of a
//! grid too. Apart from that, every decision is that of the algorithm in process. What needs nanoseconds or larger
//! numbers is decided in the process.
//!
//! If the server's clock is set back, the time of a key goes on where it was: no more is admitted because of it, and no
//! key is denied for longer than an exhausted one. If it is set forward, keys regain at most what they had at the start.
//!
//! A key of a [`TokenBucket`](crate::TokenBucket) with [`initial`](crate::TokenBucket::initial) tokens begins anew when
//! it was full for a month.
//!
//! # Failure
//!
//! A call ends within the [deadline](Redis::deadline), on every runtime, with a decision or with a
//! [`StoreError`](crate::StoreError) that says whether it is transient. A call that may have been
//! executed is never sent again, so a request is counted at most once. A call that a replica or a
//! migrating slot of a cluster refused was not executed: it is sent once more while there is time. A
//! connection that is broken, silent or leads to a replica is replaced.
//!
//! After three failures in a row the circuit breaker opens: calls fail at once, and name the last
//! error, until a probe gets a reply. Probes are sent after 25 ms, and then less often, up to four times per second. An
//! error that is not transient closes the breaker: it is a mistake, not an outage. In a cluster each range of 1,024
//! slots has a breaker.
//!
//! If the server loses its data (a failover before the last writes reached the replica, `FLUSHALL`,
//! eviction, a restart without a file), the keys start fresh. For limits that matter, use a server
//! whose `maxmemory-policy` is `noeviction`; [`Redis::check`] warns of another one.
//!
#![doc = include_str!("../../guide/redis.md")]

mod cas;
mod check;
mod cluster;
mod connection;
#[cfg(test)]
mod differential;
mod fleet;
mod kernel;
mod reply;
mod script;
mod send;
mod server;
mod source;

pub(super) use self::kernel::Kernels;
pub use self::{script::Script, server::Redis};
