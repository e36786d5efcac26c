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

use test_support::random;
