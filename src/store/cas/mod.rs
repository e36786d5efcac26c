//! One exact limit for many machines, in any store with a compare-and-swap.
//!
//! The algorithm runs in this process, on the state that the store holds. The new state replaces the
//! old one only if no other machine has replaced it meanwhile. So no algorithm is written again for
//! a store, and every one works: also tuples, [`All`](crate::All) and
//! [`AnyAlgorithm`](crate::AnyAlgorithm).

mod port;
#[cfg(feature = "postgres")]
#[cfg_attr(tower_throttle_docs, doc(cfg(feature = "postgres")))]
pub mod postgres;

pub use self::port::{CasStore, Loaded, Swapped, Value, Version};
