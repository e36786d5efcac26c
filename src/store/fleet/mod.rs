//! A limit for many machines that each of them decides in memory.
//!
//! A machine holds a *budget* of each key in use. Once per interval it reports what it has used and how much
//! was asked of it, and the store grants units. No machine admits anything of a key before the store has answered for
//! it: the first request of a key on a machine waits for one exchange, which is sent at once. Later ones are decided
//! in memory, and a key costs one exchange per machine and interval, whatever the load; an unused key costs none.
//!
//! | | [`Synced`] | [`Leased`] |
//! |---|---|---|
//! | is granted | what is free, and what refills in the coming interval | what is free |
//! | the fleet admits at most | the limit, and what refills in an interval | the limit of the algorithm |
//!
//! For a limit that decides each request by the store, use [`Cas`](crate::store::cas::Cas) or Redis.
//!
//! ```
//! use std::time::Duration;
//! use tower_throttle::store::{Backend, cas::MemoryStore, fleet::Synced};
//! use tower_throttle::{Quota, TokenBucket};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let machine = || {
//!     let bucket = TokenBucket::new(Quota::per_hour(10));
//!     Synced::new(store.clone(), "api", bucket)
//! };
//! let (a, b) = (machine()?, machine()?.interval(Duration::from_millis(50)));
//! for _ in 0..10 {
//!     assert!(a.decide("alice", 1).await?.is_admitted());
//! }
//! a.close().await?;
//! assert!(b.decide("alice", 1).await?.is_denied());
//! # Ok(())
//! # }
//! ```
//!
//! # What the fleet admits at most
//!
//! The store keeps what is *used* apart from what is *out*: granted and not yet reported. The two together
//! never exceed the limit when units are granted, but for what refills later; and time lowers only what is used. So
//! nothing is refilled in place of a unit that a machine still holds, and a leased limit keeps the promise of its
//! algorithm exactly. A unit that is used late counts from then on, which raises a level or a count by one, as it did
//! while it was out.
//!
//! A synced limit counts what refills in the coming interval S as free. So N machines admit in any time T at most
//! `B + (T + S)/t`, of one unit per t with a burst of B, however many there are and whenever they start.
//!
//! A grant is the machine's share, by demand, of what is free and refills in an interval: at most three quarters of what is
//! free and a few times what was asked for, but at least what waits while that is free. So a machine with little traffic
//! is served beside one with much, and machines that start together share what there is.
//!
//! A grant lapses after one to two lives. What is still out then counts as used as of that moment: a
//! machine that crashes costs at most what it held, once. Epochs belong to a value, and last as long as the longest
//! life that was granted in the one before: machines may differ in their interval and life.
//!
//! A value counts units, and does not know the limit. Machines with another limit of the same period share it. Those
//! with another period or algorithm have values of their own.
//!
//! A cost counts as of the last use before its report, and a unit that is out counts before it is used. A log, which is
//! leased as a grid of 48 cells, loses by that: in a period of ten intervals up to an eighth. A fixed and a weighted
//! window wait for an exchange at their start.
//!
//! A lease of a log or a window includes what refills until the next exchange, if that comes after as long a time as
//! this one. A machine uses a unit only while no more is out, beside its other units, than the limit has free at that
//! time, as far as it knows: so units beyond the limit are held back by the machines that were granted last.
//!
//! # Exchanges
//!
//! A batch of up to 100 keys is sent at a time. Redis and PostgreSQL execute it in one step, without conflict
//! however many machines there are. Any other store with a [compare-and-swap](crate::store::cas::CasStore)
//! swaps one value per key, and machines that conflict take turns. Values do not name machines.
//!
//! A batch is sent again, unchanged, until there is a reply: it counts once, and its grant is kept. If a store that
//! executes batches has lost the record of that, or a swapped value was written eight times since, its costs count twice, and
//! what it gave back is free after it has lapsed: which only denies more.
//!
//! # Failure
//!
//! A machine that does not reach the store uses what it holds, for a life at most. Then its requests fail
//! at once with a transient error, and [`Fallback`](crate::store::Fallback) or the
//! layer decides. What was used is reported when the store is reached again. A store that does not
//! keep up stretches the interval, and [`FleetLimiter::lag`] shows it. An exchange that failed is tried again after a
//! random time, at most 50 ms at first and a second later. Only its keys wait for it, and in Redis and PostgreSQL others on
//! the same server; a value that cannot be read concerns its key alone, until a reset. A request that cannot be decided
//! leaves nothing behind.
//!
//! # Time
//!
//! Only the store's clock counts, if it reports its time; otherwise those of the machines, and what refills
//! in the time by which they differ can be admitted in addition, once. If they differ by more than an exhausted
//! limit takes to be free again, nothing is promised. If the store's clock is set back, what is out counts as used,
//! and no key is denied for longer than an exhausted one. If the monotonic clock of a machine jumps, what it
//! holds can be admitted in addition.

mod batch;
mod cas;
mod exchange;
mod keys;
mod limiter;
mod machine;
mod node;
mod shape;
#[cfg(all(test, not(tower_throttle_loom)))]
pub(in crate::store) mod simulation;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

#[cfg(feature = "redis")]
pub(in crate::store) use self::batch::{Batch, Replies};
pub use self::limiter::FleetLimiter;

/// A limit of a fleet that may use what refills in the coming interval.
pub type Synced<S, A> = FleetLimiter<S, A, true>;

/// A limit of a fleet that never exceeds that of its algorithm.
pub type Leased<S, A> = FleetLimiter<S, A, false>;
