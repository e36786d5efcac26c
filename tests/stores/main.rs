//! Where states live: the table of a process, stores with a compare-and-swap, and fleets, mostly over a store in
//! memory.

#[cfg(feature = "cas")]
mod altered_store;
#[cfg(feature = "cas")]
mod cas;
#[cfg(feature = "cas")]
mod fleet;
mod linearizable;
mod local;
#[cfg(feature = "cas")]
mod memory_fleet;
#[cfg(feature = "cas")]
mod overwrite;
#[cfg(feature = "cas")]
mod set_clock;

#[cfg(feature = "metrics")]
use test_support::measured;
use test_support::{counting, random};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;
