//! A limit for many machines that take units ahead and use them in memory.
//!
//! A machine takes some units of a key from the store, before requests need them. It decides in memory
//! as long as it has some, and takes more before they run out. The fleet as a whole keeps the promise of
//! the algorithm, as with an exact limit.
//!
//! ```
//! use tower_throttle::store::{Backend, cas::MemoryStore, lease::Leased};
//! use tower_throttle::{FixedWindow, Quota};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let machine = || Leased::new(store.clone(), "api", FixedWindow::new(Quota::per_hour(100)), 20);
//! let (a, b) = (machine(), machine());
//! let mut admitted = 0;
//! for _ in 0..200 {
//!     admitted += u64::from(a.decide("alice", 1).await?.is_admitted());
//!     admitted += u64::from(b.decide("alice", 1).await?.is_admitted());
//! }
//! assert_eq!(admitted, 100);
//! # Ok(())
//! # }
//! ```
//!
//! # When to use it
//!
//! | | decides | the fleet admits | a request waits |
//! |---|---|---|---|
//! | [`Cas`](crate::store::cas::Cas), Redis | in the store | the limit | for the store, always |
//! | [`Leased`] | in memory | the limit | for the store, if the machine has no units |
//! | [`Synced`](crate::store::synced::Synced) | in memory | the limit and a bounded excess | never |
//!
//! Use it if the limit must not be exceeded, and most requests are for keys that are used often. It
//! costs:
//!
//! - The first request for a key waits for the store, as does each one near the limit, where machines take
//!   single units.
//! - A request can be denied while other machines hold units that they do not use. All machines together
//!   hold less than half of what is left, and return what is idle.
//! - Used units count as of up to a twelfth of a [life](LeasedBuilder::life) later than they were used.
//!   If the period is not much longer than a life, less than the limit is admitted.
//! - A machine that crashes takes its units with it: they count as used at the end of its lease.
//! - A key in use is exchanged three times in the life of a lease, or more often if its units run out
//!   earlier; each exchange is a write.
//!
//! # Why the promise holds
//!
//! A machine may use the units that it holds at any moment until its lease ends. So the store grants
//! units only as far as the algorithm would admit, at that moment, all units that are out and the new
//! ones together. A bucket loses by time at least as much of a level that was reached earlier, so its level
//! never exceeds the burst, whenever the units are used. In a window, those that were out at the
//! last grant before it ended, and those that were counted in it by then, are together within the limit.
//! Units that are used in the next window are out until they are reported, so they count there. The same is
//! true of the window that ends at any moment of a log, and of each cell of a grid.
//!
//! A bucket refills nothing in place of a unit that is out. When it is reported as used, it counts as of a
//! moment that is not earlier than its use. When it is returned, it never counted. When its
//! lease ends without either, it counts as used at the end. Each of these only moves costs to a later
//! moment, after which the algorithm admits no more than it would have.
//!
//! This does not work for a queue and for [`WarmUp`](crate::WarmUp), which say when a request goes, for
//! [`Lockout`](crate::Lockout), which counts what it denies, and for
//! [anchored](crate::FixedWindow::anchored) windows, which begin with a use that the store learns of later:
//! the [builder](LeasedBuilder::build) refuses them. A layer denies requests above a leased limit rather than queue them.
//!
//! # How many units are taken
//!
//! A machine takes a quarter more than it uses between two exchanges, at most as many as configured, and
//! at most an equal part of half of what is left. It begins with a sixteenth, doubles what it takes at most
//! once per exchange, and takes half after it has used little twice. It asks for more when a quarter
//! is left, or earlier if exchanges take long, so that a steady stream of requests never waits. A cost
//! that is above what it holds is taken exactly.
//!
//! If nothing is left, requests are denied without asking the store until the next unit comes, the lease of
//! another machine ends, or a third of a life has passed. So a denied key learns of a reset or a returned
//! unit by then. Limits are reset and changed for the fleet; a change is sent at once.
//!
//! # Leases
//!
//! A machine has one lease per key, which ends some time after its last exchange. A report says
//! what was used and what the machine keeps; the rest is free again. A report that is sent again, because
//! its reply was lost, is recognized by its number and counted once. A late reply of a lease that has
//! ended grants nothing. Reports and returns after the end change nothing: the units
//! have been counted. After a third of a life in which a key was not used, its units are returned, as all
//! are by [`close`](Leased::close).
//!
//! # Time
//!
//! The end of a lease is a moment of the store's clock. A machine knows from each reply how far that
//! clock can be ahead of its own at most, and stops by this bound, a thousandth of a life and a millisecond
//! before the end. It looks at its clock for each request: a machine that was suspended uses nothing of a
//! lease that has ended meanwhile. If its monotonic clock stood still while it was suspended, as on a laptop that
//! sleeps, it notices by the wall clock within a twelfth of a life after it wakes up.
//!
//! If a store does not report its time, as Cassandra, machines decide by their own clocks; if its keys are
//! on several servers, as in a Redis Cluster, by theirs. These clocks may differ by at most the
//! [`clock_error`](LeasedBuilder::clock_error). The promise then holds but for what the algorithm
//! refills in that time.
//!
//! If the store has one clock, the time of a machine may be ahead of it by as long as the machine's quickest
//! request took. In theory a charge can open the next fixed window that much early.
//!
//! # Failure
//!
//! While the store cannot be reached, a machine uses what it holds, until its leases end. Then requests
//! fail, so that a [`Fallback`](crate::store::Fallback) or the layer's `on_store_error` decides, unless
//! [`when_cut_off`](LeasedBuilder::when_cut_off) says otherwise. Changes are kept and put together, at most
//! eight per key, and sent when the store is reached again.
//!
//! A store that loses its values forgets which units are out. Then the fleet exceeds the limit by at most
//! these.
//!
//! # Memory
//!
//! A machine keeps the states of as many keys as its [capacity](LeasedBuilder::capacity) in a table of a
//! fixed size, 37 to 47 bytes per key, and about 500 bytes and the name of each key of which it holds units.
//! These are at most as many. A value is named `{prefix:limit+leases:key}`, so a limit of the same name
//! that is not leased is another limit. A value in the store takes some 20 bytes for each machine that has used the
//! key lately, of which there are at most 256.

mod backend;
mod builder;
mod clock;
mod decide;
mod exchange;
mod find;
mod fleet;
mod future;
mod held;
mod key;
mod machine;
mod node;
mod plan;
#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod simulation;
#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests;

pub use self::{
    backend::{Leased, LeasedCounts},
    builder::LeasedBuilder,
    future::LeasedFuture,
};
