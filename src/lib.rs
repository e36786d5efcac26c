//! Rate limiting for any tower `Service`.
#![cfg_attr(tower_throttle_docs, feature(doc_cfg))]

pub mod algorithm;
mod clock;
mod decision;
mod error;
mod handle;
mod http;
mod key;
mod layer;
mod limiter;
mod lone;
mod quota;
mod respond;
mod store;
mod sync;

#[cfg(feature = "governor")]
pub use self::algorithm::Gcra;
#[cfg(feature = "axum")]
pub use self::http::{MatchedPath, Route};
pub use self::{
    algorithm::{
        All, Charge, FixedWindow, Inherit, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow,
        TokenBucket, WarmUp,
    },
    clock::{Clock, ManualClock, ManualSleep, MonotonicClock, Tick, Timer},
    decision::{Decision, Verdict},
    error::{ConfigError, RateLimited, Rejection, StoreError},
    handle::Handle,
    http::{
        Auto, BearerToken, Client, ClientIp, Extension, Forwarded, FromExtension, Grpc, HeaderKey,
        Headers, HeadersOnly, Missing, PeerAddr, Preflight, ProblemJson, Secret,
    },
    key::{Extracted, Global, IntoKey, Key, KeyExtractor, Predicate, WithCost, WithSkip},
    layer::{Counts, Numbered, OnStoreError, RateLimit, RateLimitLayer, ResponseFuture, Tiers},
    limiter::{IntoLimiter, KeyedLimiter, Op},
    lone::Limiter,
    quota::Quota,
    respond::{
        Answer, Answers, AsError, KeepAll, Policies, Policy, Respond, Settle, SettleUp, Silent,
        Standard, Tell,
    },
    store::Local,
};
