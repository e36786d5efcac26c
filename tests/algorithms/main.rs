//! The algorithms against their promises.
//!
//! Each property is a function that returns what is wrong. It must find nothing wrong with an
//! algorithm, and something wrong with a broken copy of it.
#![cfg(all(feature = "testkit", feature = "calendar"))]

mod buckets;
mod calendar;
mod changes;
mod composition;
mod denials;
mod differential;
mod failures;
mod laws;
mod limiter;
mod limits;
mod lockout;
mod oracle;
mod places;
mod planted;
mod subjects;
mod turns;

use std::time::Duration;

use test_support::random;
use tower_throttle::clock::Tick;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("short")
}
