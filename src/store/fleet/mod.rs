//! A limit for many machines that each of them decides in memory.
//!
//! A machine holds a *budget* of each key in use. Once per interval it reports what it has used and how much
//! was asked of it, and the store grants units by its part of the fleet's demand. A decision costs no round
//! trip, and a key costs one exchange per machine and interval, whatever the load; an unused key costs none.
//!
//! | | [`Synced`] | [`Leased`] |
//! |---|---|---|
//! | may use | what was granted, what refills in the coming interval, and once before it has heard of others its part of what is free | what was granted |
//! | the fleet admits at most | the limit, a second burst, and what refills in two intervals | the limit of the algorithm |
//! | a request waits for an exchange | the first of a machine that does not know how many there are; if the limit is smaller than the fleet | if the budget is used up and units are free |
//!
//! For a limit that decides each request by the store, use [`Cas`](crate::store::cas::Cas) or Redis.
//!
//! ```
//! use std::time::Duration;
//! use tower_throttle::store::{Backend, cas::MemoryStore, fleet::SyncedBuilder};
//! use tower_throttle::{Quota, TokenBucket};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let machine = || {
//!     let bucket = TokenBucket::new(Quota::per_hour(10));
//!     let builder = SyncedBuilder::new(store.clone()).interval(Duration::from_millis(50));
//!     builder.build("api", bucket)
//! };
//! let (a, b) = (machine()?, machine()?);
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
//! never exceed the limit when units are granted, and time lowers only what is used. So nothing is refilled
//! in place of a unit that a machine still holds, and a leased limit keeps the promise of its algorithm
//! exactly. A unit that is used late counts from then on, which raises a level or a count by one, as it did
//! while it was out.
//!
//! A sliding window, alone or with buckets, loses what is out and not used when a window ends. So a leased one is
//! granted in advance what it frees in the next *slot*, which is as long as an interval or ends with the window, on the
//! condition that all that is out is free at its end. Within a slot what is used falls evenly; each unit has a *place*
//! in it and is usable when that has passed. So the machines together use at no moment more than is free.
//!
//! A synced limit is granted what refills in the coming interval S as well, or in two if the burst B does
//! not last for two, and it becomes usable evenly. Before a machine has heard of the others, it may use one
//! N-th of what is free. So N machines, whose exchanges end within D, admit in any time T at most
//!
//! ```text
//! B + T/t          the limit, of one unit per t
//! + 2 (S + D)/t    what is granted ahead
//! + B              what N machines use before they have heard of each other: N times B/N
//! + 2 N            parts are rounded up
//! ```
//!
//! The number of machines is counted in the store, and one that is too small makes the third line larger: in a
//! fleet that doubles, twice B for an interval. N machines that start together count few of each other and may use
//! N times B. [`FleetBuilder::machines`] sets a least number.
//!
//! A grant lapses after one to two lives. What is still out then counts as used as of that moment: a
//! machine that crashes costs at most what it held, once.
//!
//! Costs of a half of an interval count as of their last use, of a level as of their report. So a cost may
//! count later than it was, never earlier; and a unit that is out counts before it is used. In a log that takes a
//! place of a later one: of a second with an interval of 100 ms a leased limit loses up to an eighth.
//!
//! # Exchanges
//!
//! A batch of up to 100 keys is sent at a time. Redis and PostgreSQL execute it in one step, without conflict
//! however many machines there are. Any other store with a [compare-and-swap](crate::store::cas::CasStore)
//! swaps one value per key, and machines that conflict take turns. Values do not name machines, but for the
//! last 8 writes of a plain compare-and-swap.
//!
//! A batch is sent again, unchanged, until there is a reply: it counts once, and its grant is kept. If the
//! store has lost the record of that, its costs count twice, which only denies more.
//!
//! # Failure
//!
//! A machine that does not reach the store uses what it holds, for a life at most. Then its requests fail
//! at once with a transient error, and [`Fallback`](crate::store::Fallback) or the layer's
//! `on_store_error` decides. What was used is reported when the store is reached again. A store that does not
//! keep up stretches the interval, and [`FleetLimiter::lag`] shows it.
//!
//! A machine that has forgotten a key because its table was full asks the store before it admits
//! anything of a key that it does not know.
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
mod figures;
mod future;
mod held;
mod keys;
mod limiter;
mod machine;
mod node;
mod record;
#[cfg(feature = "redis")]
mod script;
mod settings;
mod shape;
mod shaped;
#[cfg(all(test, not(tower_throttle_loom)))]
pub(in crate::store) mod simulation;

#[cfg(feature = "redis")]
pub(in crate::store) use self::record::Reply;
pub use self::{
    batch::{Batch, Replies, Write},
    future::FleetFuture,
    limiter::{Ahead, FleetBuilder, FleetCounts, FleetLimiter, Granted, Mode},
    shape::Shape,
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
