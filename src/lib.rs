//! Rate limiting for any tower `Service`: axum, tonic, hyper, or a client.
//!
//! With the feature `axum`, which reads the address of the connection:
//!
//! ```
//! use std::{io::Result, net::SocketAddr};
//!
//! use axum::{Router, routing::get};
//! use tokio::net::TcpListener;
//! use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};
//!
//! // 10 requests per second per client, in bursts of up to 50.
//! async fn serve(listener: TcpListener) -> Result<()> {
//!     let bucket = TokenBucket::new(Quota::per_second(10).burst(50));
//!     let limit = RateLimitLayer::new(ClientIp::peer(), bucket);
//!     let app = Router::new().route("/search", get(async || "found").layer(limit));
//!     let service = app.into_make_service_with_connect_info::<SocketAddr>();
//!     axum::serve(listener, service).await
//! }
//! # use tokio::{io::{AsyncReadExt, AsyncWriteExt}, net::TcpStream};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! #     let listener = TcpListener::bind("127.0.0.1:0").await?;
//! #     let address = listener.local_addr()?;
//! #     tokio::spawn(serve(listener));
//! #     let mut stream = TcpStream::connect(address).await?;
//! #     stream.write_all(b"GET /search HTTP/1.1\r\nhost: local\r\nconnection: close\r\n\r\n").await?;
//! #     let mut response = String::new();
//! #     stream.read_to_string(&mut response).await?;
//! #     if cfg!(feature = "axum") {
//! #         assert!(response.ends_with("found"), "{response}");
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! A [`RateLimitLayer`] extracts a key from each request. The limit for this key admits the request,
//! queues it or denies it.
//!
//! Without tower, a [`Limiter`] is one limit without a key, and [`Local`] is one limit per key:
//!
//! ```
//! use tower_throttle::{Limiter, Local, Quota, TokenBucket};
//!
//! let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10)));
//! assert!(limiter.check(1).is_admitted());
//!
//! let limiter = Local::new(TokenBucket::new(Quota::per_second(10))).capacity(1_000_000);
//! assert!(limiter.check("alice", 1).is_admitted());
//! ```
//!
//! The [`guide`] says how to choose, place, test and run limits, and how to migrate from other crates.
//!
//! # Modules
//!
//! | module | contains |
//! |---|---|
//! | the root | what most programs use: [`RateLimitLayer`], the algorithms, [`Quota`], [`ClientIp`] |
//! | [`algorithm`] | the trait `Algorithm`, and what each algorithm promises |
//! | [`key`] | which key a request has: `KeyExtractor` and all extractors |
//! | [`respond`] | what clients are told: responses to denied requests, headers, settling |
//! | [`layer`] | the layer and its service in detail, counters |
//! | [`concurrency`] | limits on how many requests of one key are in flight |
//! | `accept` | limits on connections, before TLS (feature `accept`) |
//! | `stream` | messages one by one, and bytes per second (feature `stream`) |
//! | [`policy`] | limits as text, `token_bucket 10/s; burst=50`, and in files that are reloaded |
//! | [`client`] | a client that keeps to the limits that its servers state |
//! | [`store`] | where states live: `Local`, Redis, `Fallback`, and the trait `Backend` |
//! | `testkit` | checks of an algorithm, a backend or a store of your own (feature `testkit`) |
//! | [`clock`] | clocks and timers; [`ManualClock`] for tests |
//! | [`guide`] | how to choose, place, test and run limits |
//!
//! # Algorithms
//!
//! Start with [`TokenBucket`]: a rate, and a burst. The others are for limits that it cannot state.
//!
//! | | promises |
//! |---|---|
//! | [`TokenBucket`] | a rate, and bursts of up to B: at most `B + T * L/W` in any time T |
//! | [`LeakyBucket`] | the same; with a burst of 1 an even distance between requests |
//! | [`FixedWindow`] | at most L in each window, so 2L around the end of one |
//! | [`CalendarWindow`] | at most L in each day, week or month of a time zone |
//! | [`SlidingLog`] | at most L in any window, exactly; the state grows with L |
//! | [`SlidingWindow`] | nearly that for smooth traffic, at most 2L, in constant memory |
//! | [`SlidingGrid`] | at most L in any window of almost the length, with `strict` of the whole length |
//! | [`WarmUp`] | a rate that rises after a pause |
//! | `Gcra` | what the governor crate decides, with the feature `governor` |
//! | [`Lockout`] | guesses blocked, each time for longer |
//! | a tuple, [`All`] | what each part promises: all admit, or none is charged |
//! | [`ConcurrencyLimitLayer`] | at most n requests in flight |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tokio` | yes | what runs in the background, in tasks of the caller's runtime |
//! | `test-util` | | for tests: queues and the default clock follow tokio's paused time |
//! | `axum` | | the peer address from `ConnectInfo`; `MatchedPath` as a key |
//! | `accept` | | `accept`, limits on connections for axum, hyper and tonic |
//! | `stream` | | `stream`, limits on messages and on bytes per second |
//! | `tonic`, `tonic-tls` | | the peer address from tonic's connection info; a `tonic::Status` from a `RateLimited` |
//! | `governor` | | `Gcra`, which the governor crate decides |
//! | `calendar` | | `CalendarWindow`, with jiff and its copy of the time zone database |
//! | `serde` | | `Quota` as text (`"10/s; burst=50"`) in configuration files |
//! | `policies` | | `PolicyFile`, the limits of a program in a file: in TOML, or in any other format of serde |
//! | `redis`, `redis-tls` | | `store::redis`, one limit for a fleet (Rust 1.88) |
//! | `cas` | | `store::cas`, one limit for a fleet in a store of your own |
//! | `postgres` | | `store::cas::postgres`, the same in PostgreSQL |
//! | `cassandra` | | `store::cas::cassandra`, the same in Cassandra or ScyllaDB |
//! | `testkit` | | `testkit`, checks of an algorithm, a backend or a store of your own, for tests |
//! | `tracing`, `metrics` | | events for denials and outages, and counters; keys are never logged |
//!
//! Rust 1.85 for all features but those of Redis.
//!
//! # Time
//!
//! Limits use a monotonic clock. In tests it follows tokio's paused time if the feature `test-util` is
//! enabled, and [`ManualClock`] moves only when told to.
//!
//! # Settings
//!
//! A setting that is not allowed panics where it is written, or where the limit is made of it, and says what is
//! allowed. What comes from outside of the program is checked as text, or as numbers: `"10/s; burst=50"` parses as a
//! [`Quota`], `"token_bucket 10/s; burst=50"` as an [`AnyAlgorithm`], a list of networks as
//! [`Networks`](key::Networks), and `Quota::try_from` takes a limit and a period.
//!
//! Limits and costs go up to 2^53 - 1, periods up to 10 years. Arithmetic is exact: 3 per second is one per third of a
//! second.
#![cfg_attr(tower_throttle_docs, feature(doc_cfg))]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("tower-throttle needs a target with 64-bit atomics, which this one does not have");

#[cfg(feature = "accept")]
pub mod accept;
mod acquire;
pub mod algorithm;
mod backend;
pub mod client;
pub mod clock;
pub mod concurrency;
mod decision;
mod denied;
mod error;
#[cfg(all(doc, not(doctest)))]
pub mod guide;
pub mod key;
pub mod layer;
mod limiter;
#[cfg(doc)]
mod picture;
pub mod policy;
mod queue;
mod quota;
mod receipt;
pub mod respond;
mod saved;
pub mod store;
#[cfg(feature = "stream")]
pub mod stream;
mod sync;
mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;

#[cfg(feature = "governor")]
#[doc(inline)]
pub use self::algorithm::Gcra;
#[doc(inline)]
pub use self::{
    algorithm::{
        All, AnyAlgorithm, CalendarWindow, FixedWindow, LeakyBucket, Lockout, SlidingGrid,
        SlidingLog, SlidingWindow, TokenBucket, WarmUp,
    },
    clock::ManualClock,
    concurrency::{ConcurrencyLimit, ConcurrencyLimitLayer},
    decision::{Decision, Verdict},
    error::{ConfigError, RateLimited, StoreError},
    key::{ClientIp, Global, HeaderKey},
    layer::{Handle, RateLimit, RateLimitLayer},
    limiter::Limiter,
    quota::Quota,
    respond::{AsError, Headers, ProblemJson, Settle},
    store::local::Local,
};

/// The example of the README compiles; `tests/packaged.rs` serves it.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
