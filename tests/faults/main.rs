//! A server under fault: clients that cut connections, read slowly, send half requests; handlers that panic or never end; a runtime that is shut down.
//!
//! After each fault the seats, the positions in the queues, the states in the table and the memory are
//! back where they were, and no more was admitted than promised.
#![cfg(all(feature = "tokio", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod building;
mod checks;
mod client;
mod faults;
#[cfg(feature = "redis")]
mod hostile;
mod limits;
mod server;

use test_support::counting;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

use std::sync::{Mutex, PoisonError};

use faults::FAULTS;

/// One fault at a time: the memory is that of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// The connections per fault. Each of them takes two files of this process.
fn connections() -> usize {
    let given = std::env::var("FAULT_CONNECTIONS");
    given.map_or(200, |given| {
        given.parse().expect("FAULT_CONNECTIONS: a number")
    })
}

/// Shows promise 105.
#[test]
fn every_fault_leaves_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, fault) in FAULTS {
        let broken = checks::run(*fault, connections());
        assert!(broken.is_empty(), "{name}: {broken:?}");
    }
}
