//! A limit for many machines that each of them decides in memory.
//!
//! A decision costs no round trip. Once per interval, each machine reports what it has admitted of the
//! keys in use, and learns what the others have admitted. So the fleet may exceed its limit, by a
//! bound that is stated below. For a limit that is exact, use [`Cas`](crate::store::cas::Cas) or Redis.
//!
//! ```
//! use std::time::Duration;
//! use tower_throttle::store::{Backend, cas::MemoryStore, synced::SyncedBuilder};
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
//! // The other machine does not know yet. It does after an exchange of its own.
//! assert!(b.decide("alice", 1).await?.is_admitted());
//! tokio::time::sleep(Duration::from_millis(100)).await;
//! assert_eq!(b.decide("alice", 1).await?.remaining(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What the fleet admits at most
//!
//! For N machines, interval S, and a time D in which an exchange ends, a token bucket with burst B and
//! one unit per t admits in any time T at most
//!
//! ```text
//! B + T/t                       the limit
//! + (N - 1) (B + (S + D)/t)     what each other machine admits before it learns of the rest
//! + B                           the shares of machines that others left nothing
//! ```
//!
//! In practice it is far less. A machine that has admitted half of an equal part of what is left
//! exchanges at once, so what is nearly used up is decided nearly exactly.
//!
//! With [`strict_budget(q)`](SyncedBuilder::strict_budget), N machines exceed the limit of any
//! algorithm by at most (N - 1) q, however long an exchange takes, and whatever is lost. A machine that
//! stops without [`close`](Synced::close) counts as one more. A request waits for an exchange if the
//! budget is used up, and fails if there is none within the deadline.
//!
//! The costs of an interval are reported as one. For a bucket and a [`WarmUp`](crate::WarmUp) it counts
//! as of a moment before the exchange, chosen so that the costs count no less than each as of its own
//! moment. So one machine admits all of the limit, whatever the burst. The idle time of a `WarmUp` in an
//! interval counts as before the costs of that interval.
//!
//! So does a bucket beside a window or log, whose costs count as of the end of their window, or of the
//! exchange. Several buckets count them as of the moment of the fastest. A slower one whose burst does not
//! last for an interval pauses after each exchange: choose an interval in which less than the burst is
//! refilled, or an exact limit.
//!
//! # Quiet machines
//!
//! If busy machines use up the limit, a machine that has used less than its share, an equal part of the
//! quota, still admits requests until it has used its share. What it admits is counted, so the busy
//! ones are denied for longer. There are no shares with a strict budget, nor of a key
//! that is banned or blocked.
//!
//! # Exchanges
//!
//! A report names its machine, its sequence number, and when each cost was taken. It is made a part of
//! what the store holds by a compare-and-swap. A report that is sent again, because its reply was
//! lost, is recognized and counted once, unless 256 other machines have reported the key since or the
//! store has forgotten the key. A cost that arrives after the end of its window is counted in that window,
//! so it takes nothing from the next one. A machine that is started again is another machine: what it had
//! not reported is lost, unless it was [closed](Synced::close).
//!
//! A key that is not used costs nothing: its name is forgotten after an interval without a request for it.
//! Until then its requests allocate nothing, however many exchanges there are.
//! A denied key in use is exchanged too, so it learns of resets and refunds.
//!
//! # Failure
//!
//! Exchanges are tried again in each interval. The changes of a key that wait for it are at most a few:
//! costs are put together, as of the later moment. After some intervals without a reply the machine is
//! cut off: see [`WhenCutOff`]. A strict budget holds all the same. When the store is reached again, the
//! reports are sent, at most 500 at a time, and fewer if exchanges take long: a store that has more to do
//! than it can would otherwise work on calls that have ended.
//!
//! Reports are kept of a sixteenth more keys than the [capacity](SyncedBuilder::capacity). The costs of
//! further keys are not reported, as are those of a key whose place in the full table another key has taken.
//! [`SyncedCounts::lost`] counts both.
//!
//! # Speed and memory
//!
//! With up to 1,000 keys a decision takes less than 1.2 times as long as that of a
//! [`Local`](crate::Local) limit. A key takes 14 to 23 bytes more in the table than in a local one, and
//! 23 bytes or more in the table of shares. A key in use takes its name and about 200 bytes more. A key that was
//! not used since its exchange is forgotten in the next interval. While the names of more keys than the
//! capacity are kept, each is forgotten after its exchange.
//!
//! An exchange that does not end within an interval goes on in the next one. [`Synced::lag`] returns how
//! long the oldest change has waited. `docs/synced.md` has measurements over Redis and PostgreSQL.
//!
//! # Time
//!
//! Machines decide by the store's clock, if it reports its time. Before its first exchange a machine
//! has only its own clock: the costs of that interval are counted as of the exchange.
//!
//! The store keeps a key for ten intervals longer than its algorithm needs, because costs that are reported
//! later may count as of an earlier moment. The costs of a bucket that is reported later than that count
//! as of ten intervals before, if the store has forgotten the key.
//!
//! If the store does not report its time, as Cassandra, machines decide by their own clocks; if its keys
//! are on several servers, as in a Redis Cluster, by theirs. The costs of a machine whose clock is behind
//! count by the clocks of the others. What is refilled in the time by which clocks differ can be admitted
//! in addition.

mod backend;
mod clock;
mod collect;
mod decide;
mod fleet;
mod future;
mod machine;
mod node;
mod rules;
#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod simulation;
mod tracked;

pub use self::{
    backend::{Synced, SyncedBuilder, SyncedCounts},
    future::SyncedFuture,
};
pub use crate::store::fleet::WhenCutOff;
