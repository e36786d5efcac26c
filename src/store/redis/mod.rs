//! One exact limit for many machines, in a Redis server.
//!
//! Every algorithm is one script, and every decision is one round trip. The server decides calls in
//! the order in which they arrive, on its own clock. Machines that share a limit together admit
//! exactly what one machine would.
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
//! permission, a cluster without its client, a proxy, a version that is too old, eviction.
//!
//! # What is stored
//!
//! One Redis key per limit and key, `{prefix:policy:key}` (see
//! [`RemoteKey`](crate::store::remote::RemoteKey)). The further limits of
//! a tuple are at the same name with `:1`, `:2`, in the same slot. A Redis key expires when the
//! limiter would decide the same without it, up to 1.1 seconds later, so unused keys disappear. A denied request writes
//! nothing.
//!
//! Machines may use different configurations under one policy name, as in a rolling deploy. Each
//! configuration has a state of its own in the value of the key, so together they admit at most the sum
//! of what each one promises. A configuration that has no state yet takes
//! over the usage of the newest one, if it is of the same algorithm. Usage never comes back to the
//! configuration that it came from, so none is denied for longer than its own exhausted key would be.
//! The key lives as long as any of these states. A
//! reset concerns the configuration of its limiter only.
//!
//! A key with a [quota of its own](crate::store::PerKey::over) has one quota at a time, and what it uses counts under
//! each one that it had.
//!
//! # Clusters and proxies
//!
//! All keys of a call are in one slot. A plain client, as of [`Redis::open`], works in a cluster of
//! one master, where calls are not batched. For several masters use [`Redis::with_cluster`].
//!
//! twemproxy and Envoy distribute keys over servers and send a script call to the server of its
//! first key. Limits behind them are exact [without batching](Redis::without_batching).
//!
//! # Changing a quota
//!
//! [`RedisLimiter::set_quota`] changes the quota of the fleet at run time. It uses one more key per
//! policy, which every limiter in use reads once a second.
//!
//! # Speed
//!
//! Calls in flight at the same time share a script call. A single call costs hardly more than a
//! minimal script. `cargo run --release -p compare -- redis` compares both on your machine.
//!
//! # Numbers
//!
//! Redis counts microseconds, and its scripts are exact up to 2^53. Windows and their offsets are
//! whole microseconds, and waits are rounded up to one. Apart from that, every decision is that of
//! the algorithm in process. A quota whose numbers do not fit is refused when the limiter is built.
//! If the server's clock is set back, states move with it: no more is admitted because of it, and no
//! key is denied for longer than an exhausted one, in windows, logs and lockouts for at most one window
//! or period longer. If it is set forward, keys regain at most what they had at the start.
//!
//! # What differs from a limit in process
//!
//! - Refused here: windows, logs and offsets that are not whole microseconds, numbers above 2^52, a
//!   [`SlidingLog`](crate::SlidingLog) of more than 65,536, an empty [`All`](crate::All), a
//!   [`TokenBucket`](crate::TokenBucket) with a debt or with steps, and algorithms of your own.
//! - After a change of quota a key changes at its next call, not at the moment of the change. An earlier quota that is set again finds the state that it left.
//! - A key of a [`TokenBucket`](crate::TokenBucket) with
//!   [`initial`](crate::TokenBucket::initial) tokens begins anew when it was full for a month, and for
//!   1,000 times as long as it takes to fill.
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
//! error, until a probe gets a reply. [`Redis::failure_threshold`] and [`Redis::probe_interval`]
//! change that. An error that is not transient closes the breaker: it is a mistake, not an outage. In
//! a cluster each master has a breaker.
//!
//! If the server loses its data (a failover before the last writes reached the replica, `FLUSHALL`,
//! eviction, a restart without a file), the keys start fresh. For limits that matter, use a server
//! whose `maxmemory-policy` is `noeviction`; [`Redis::check`] warns of another one.
//!
#![doc = include_str!("../../guide/redis.md")]

mod any;
mod backend;
mod calendar;
mod call;
#[cfg(feature = "cas")]
mod cas;
mod check;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod connection;
#[cfg(test)]
mod differential;
mod executor;
#[cfg(feature = "cas")]
mod fleet;
mod future;
#[cfg(feature = "governor")]
mod gcra;
mod interval;
mod lockout;
mod params;
mod policy;
mod pool;
mod rates;
mod reply;
mod script;
mod send;
mod server;
mod sets;
mod slots;
mod source;
mod windows;

pub use self::{backend::RedisLimiter, future::RedisFuture, script::Scripted, server::Redis};
