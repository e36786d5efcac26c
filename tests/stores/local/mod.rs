//! The table: against an unbounded map, floods of keys, threads and panics in user code.
//!
//! Each property is a function that returns the faults it found. It must find none in the table,
//! and it must find some in a deliberately broken copy.

mod capacity;
mod fallback;
mod flood;
mod histories;
mod memory;
mod model;
mod retune;
mod saved;
mod users;
