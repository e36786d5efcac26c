//! A server under fault: clients that cut connections, read slowly, send half requests or come by the
//! thousand; handlers that panic or never end; a runtime that is shut down.
//!
//! After each fault the seats, the positions in the queues, the states in the table and the memory are
//! back where they were, and no more was admitted than promised.
//! `cargo test --test faults -- --nocapture` prints the figures in a table.
#![cfg(all(feature = "tokio", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod building;
mod checks;
mod client;
mod crowd;
mod faults;
#[cfg(feature = "redis")]
mod hostile;
mod limits;
mod server;

use test_support::counting;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

use std::sync::{Mutex, PoisonError};

use checks::{Check, Row};
use faults::{FAULTS, Fault};
use server::Plant;

/// One fault at a time: the memory is that of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// The connections per fault, of a crowd ten times as many. Each of them takes two files of this
/// process.
fn connections() -> usize {
    let given = std::env::var("FAULT_CONNECTIONS");
    let wanted: usize = given.map_or(200, |given| {
        given.parse().expect("FAULT_CONNECTIONS: a number")
    });
    crowd::allowed(2 * wanted) / 2
}

/// Shows promise 105.
#[test]
fn every_fault_leaves_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{}", Row::title());
    let mut broken = Vec::new();
    for (name, fault) in FAULTS {
        let row = checks::run(name, *fault, connections(), Plant::Nothing);
        println!("{row}");
        if !row.broken.is_empty() {
            broken.push(row.to_string());
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Each check finds its planted mistake.
///
/// Shows promise 105.
#[test]
fn planted_mistakes_are_found() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let resets: Fault = faults::resets;
    for (plant, check) in [
        (Plant::KeepsSeat, Check::Seats),
        (Plant::KeepsPosition, Check::Positions),
        (Plant::KeepsWaiter, Check::Waiting),
        (Plant::KeepsSlot, Check::Table),
        (Plant::KeepsMemory, Check::Memory),
        (Plant::CountsTwice, Check::Promise),
    ] {
        let row = checks::run("planted", resets, 100, plant);
        let found = row.broken.iter().any(|(broken, _)| *broken == check);
        assert!(found, "{plant:?} is not found by {check:?}: {row}");
    }
}
