//! The table of many keys against a map without bounds, against floods, threads and its users.
//!
//! Each property is a function that answers what it found wrong, so that the same function that
//! must find nothing in the table must find something in a broken copy of what it holds.

mod flood;
mod histories;
mod memory;
mod model;
mod random;
mod retune;
mod room;
mod users;
