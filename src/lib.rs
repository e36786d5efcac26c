//! Rate limiting for any tower `Service`: every common algorithm behind one type of decision.
//!
//! An [algorithm](algorithm) says how much; a [`Quota`] says how much of it. [`Limiter`] is the
//! shortest way to use one:
//!
//! ```
//! use tower_throttle::{Limiter, Quota, TokenBucket, Verdict};
//!
//! let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10).burst(50)));
//! match limiter.check().verdict {
//!     Verdict::Admit => println!("go"),
//!     Verdict::Wait(time) => println!("go in {time:?}"),
//!     Verdict::Deny => println!("turned away"),
//!     _ => unreachable!("there are no other verdicts today"),
//! }
//! ```
//!
//! # The rooms
//!
//! | where | what |
//! |---|---|
//! | [`Quota`], [`Decision`], [`Clock`], [`ConfigError`] | the words everything is said in |
//! | [`algorithm`] | how much: one pure transition per algorithm, and what each promises |
//! | [`Limiter`] | one limit on its own, for samplers, jobs and clients |
//! | [`KeyedLimiter`] | where the states of many keys live |
//!
//! # Time
//!
//! Limiters count on a monotonic clock; [`ManualClock`] stands in for it in tests. With the `tokio`
//! feature (on by default) the clock obeys tokio's paused time.
//!
//! # Numbers
//!
//! All arithmetic is in integers, and what a division leaves over is carried in the state: a rate
//! of 3 a second is a third of a second exactly, however often it is asked. Limits and costs go up
//! to 2^63 - 1, times to 2^63 - 1 ns (292 years), periods to 146 years.
#![cfg_attr(tower_throttle_docs, feature(doc_cfg))]

pub mod algorithm;
mod clock;
mod decision;
mod error;
mod limiter;
mod lone;
mod quota;
pub mod store;
mod sync;

#[cfg(feature = "governor")]
pub use self::algorithm::Gcra;
pub use self::{
    algorithm::{
        All, Charge, FixedWindow, Inherit, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow,
        TokenBucket, WarmUp,
    },
    clock::{Clock, ManualClock, ManualSleep, MonotonicClock, Tick, Timer},
    decision::{Decision, Verdict},
    error::{ConfigError, StoreError},
    limiter::{IntoLimiter, KeyedLimiter, Op},
    lone::Limiter,
    quota::Quota,
};

/// The README's example is run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
