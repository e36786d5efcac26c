//! Tests of the table: against an unbounded map, floods of keys, threads and panics in user code.
//!
//! Each property is a function that returns the faults it found. It must find none in the table,
//! and it must find some in a deliberately broken copy.

mod capacity;
mod env;
mod fallback;
mod flood;
mod histories;
#[path = "../common/linearizable.rs"]
mod linearizable;
mod memory;
mod model;
mod rates;
mod retune;
mod saved;
mod users;

use test_support::{counting, random};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;
