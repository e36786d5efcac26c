//! The table: against an unbounded map, floods of keys, threads and panics in user code.

mod capacity;
mod fallback;
mod flood;
mod histories;
mod memory;
mod model;
mod saved;
mod users;
