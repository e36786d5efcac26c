//! Where the states of many keys live.

#[cfg(feature = "redis")]
pub mod redis;
