//! Rate limiting for any tower `Service`: every common algorithm behind one type of decision.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};
//!
//! async fn search() -> &'static str {
//!     "found"
//! }
//!
//! let limit = RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_second(10).burst(50)));
//! let app: Router = Router::new().route("/search", get(search).layer(limit));
//! ```
//!
//! A [`RateLimitLayer`] takes a key from the request and asks a limiter whether it goes through,
//! waits or is turned away. An [algorithm] says how much, a [`Quota`] how much of it. Without tower,
//! [`Limiter`] is one limit on its own:
//!
//! ```
//! use tower_throttle::{Limiter, Quota, TokenBucket};
//!
//! let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10).burst(50)));
//! assert!(limiter.check().is_admitted());
//! ```
//!
//! # The rooms
//!
//! | where | what |
//! |---|---|
//! | [`Quota`], [`Decision`], [`Clock`], [`ConfigError`] | the words everything is said in |
//! | [`algorithm`] | how much: one pure transition per algorithm, and what each promises |
//! | [`RateLimitLayer`] | the tower part: a key, a limiter, and what the refused are told |
//! | [`ClientIp`], [`HeaderKey`], [`Global`] | whose request it is |
//! | [`Headers`], [`ProblemJson`], [`Grpc`] | what clients are told |
//! | [`Limiter`] | one limit on its own, for samplers, jobs and clients |
//! | [`Local`] | one limit for each of many keys, in a table of fixed size |
//! | [`RateLimitLayer`] | a limit around any tower `Service` |
//! | [`Order`], [`WhenFull`] | who goes first of those who wait, and what happens when the room is full |
//! | [`ClientIp`], [`HeaderKey`], [`Headers`], [`ProblemJson`], [`Grpc`] | what HTTP adds: whose request it is, what the sender is told |
//! | [`Handle`] | looking at limits and changing them at run time |
//! | [`Backend`], [`KeyExtractor`], [`Respond`] | the ports: where states live, whose request it is, how it is answered |
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
mod backend;
pub mod clock;
mod decision;
mod error;
pub mod key;
pub mod layer;
mod limiter;
pub mod queue;
mod quota;
pub mod respond;
pub mod store;
mod sync;

#[cfg(feature = "governor")]
pub use self::algorithm::Gcra;
pub use self::{
    algorithm::{
        All, AnyAlgorithm, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow,
        TokenBucket, WarmUp,
    },
    clock::ManualClock,
    decision::{Decision, Verdict},
    error::{ConfigError, RateLimited, StoreError},
    key::{ClientIp, Global, HeaderKey},
    layer::{Handle, RateLimit, RateLimitLayer, Tiers},
    limiter::Limiter,
    quota::Quota,
    respond::{AsError, Headers, ProblemJson, Settle},
    store::local::Local,
};

/// The README's examples are run with the documentation's, where there is all that they use.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
