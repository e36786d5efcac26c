//! Guide: how to choose, place, test and run limits.
//!
//! Each page says first what to do, then why.
//!
//! | page | question |
//! |---|---|
//! | [`choosing`] | which algorithm and which store |
//! | [`layers`] | in which order with CORS, timeouts, compression and authentication |
//! | [`proxies`] | which address a client has behind proxies, and the usual mistakes |
//! | [`kubernetes`] | several replicas |
//! | [`grpc`] | limits per method in tonic |
//! | [`clients`] | how a client stays within a limit, and obeys a 429 |
//! | [`queues`] | requests that wait, and backpressure |
//! | [`testing`] | tests of your own limits |
//! | [`stores`] | Redis, PostgreSQL, Cassandra |
//! | [`fleets`] | limits of several machines that decide in memory |
//! | [`failure`] | what happens while a store is down |
//! | [`policies`] | limits in files, which are reloaded |
//! | [`observing`] | metrics, events, alerts and a dashboard |
//! | [`security`] | what to set against attackers |
//! | [`recipes`] | short solutions |
//! | [`migrating`] | from other crates and other languages |

#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}
#[doc = include_str!("../docs/layers.md")]
pub mod layers {}
#[doc = include_str!("../docs/proxies.md")]
pub mod proxies {}
#[doc = include_str!("../docs/kubernetes.md")]
pub mod kubernetes {}
#[doc = include_str!("../docs/grpc.md")]
pub mod grpc {}
#[doc = include_str!("../docs/clients.md")]
pub mod clients {}
#[doc = include_str!("../docs/queues.md")]
pub mod queues {}
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}
#[doc = include_str!("../docs/stores.md")]
pub mod stores {}
#[doc = include_str!("../docs/fleets.md")]
pub mod fleets {}
#[doc = include_str!("../docs/failure.md")]
pub mod failure {}
#[doc = include_str!("../docs/policies.md")]
pub mod policies {}
#[doc = include_str!("../docs/observing.md")]
pub mod observing {}
#[doc = include_str!("../docs/security.md")]
pub mod security {}
#[doc = include_str!("../docs/recipes.md")]
pub mod recipes {}
#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}
