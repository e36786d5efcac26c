//! One limit for many machines, exact, in a Redis server.
//!
//! Every algorithm is one script: a decision is one round trip, decided in the order in which the
//! server takes the calls, on the server's clock. Many machines under one limit admit together
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
//! # What is stored
//!
//! One key for each limit and key, `{prefix:policy:key}` (see [`RedisKey`]; the further limits of a
//! tuple are at the same name and `:1`, `:2`, in the same slot). It expires when the limiter would
//! decide the same without it, so what nobody asks for disappears. A denied request writes
//! nothing. The value says which quota it was made for: a limiter with another quota carries it
//! over as [`Inherit::AsIs`](crate::algorithm::Inherit::AsIs) says, so a changed configuration neither forgets
//! what was used nor gives it out again.
//!
//! [`RedisLimiter::set_quota`] changes the quota of the fleet while it runs: one key more for each
//! policy, where all limiters look once a second.
//!
//! # Speed
//!
//! Calls in flight together share a script call, and one that is alone costs hardly more than a
//! script written by hand. `cargo run --release -p compare -- redis` measures both beside such a
//! script, on the machine that it runs on.
//!
//! # Numbers
//!
//! Redis counts microseconds, and its scripts count exactly up to 2^53. Windows and their offsets
//! are whole microseconds, and what a caller is told to wait is rounded up to one; within that
//! every decision is the one that the algorithm makes in process. A quota whose figures do not fit
//! is refused when the limiter is made. If the server's clock is set back, states move with it:
//! nobody is admitted more for it, and nobody denied for longer than an exhausted key would be. If
//! it is set forward, keys regain at most what they had at the beginning.
//!
//! # Failure
//!
//! A call ends within the [deadline](Redis::deadline), with a decision or with a
//! [`StoreError`](crate::StoreError) that says whether it passes by itself. What may have been
//! carried out is never sent again, so a request is counted at most once. What a replica refused,
//! or a slot of a cluster on its way, was not carried out: it is sent once more while there is time.
//! A connection that broke, went silent or leads to a replica is replaced. After three failures in a row the server is left
//! alone, but for a probe each 250 ms; calls in between fail at once. In a cluster the other servers
//! are asked as always.
//!
//! If the server loses what it stored (a failover before the last writes reached the replica,
//! `FLUSHALL`, eviction, a restart without its file), the keys begin anew. Give a limit that
//! matters a server whose `maxmemory-policy` is `noeviction`.

mod any;
mod backend;
mod batch;
mod breaker;
mod connection;
mod deny_cache;
#[cfg(test)]
mod differential;
mod future;
#[cfg(feature = "governor")]
mod gcra;
mod key;
mod live_policy;
mod params;
mod pool;
mod rates;
mod reply;
mod script;
mod server;

pub use self::{
    backend::RedisLimiter,
    breaker::BreakerCounts,
    future::RedisFuture,
    key::{KeyName, RedisKey},
    script::Scripted,
    server::Redis,
};
