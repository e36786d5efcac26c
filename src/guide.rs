//! Guide: how to choose, place, test and run limits.
//!
//! Each page says first what to do, then why. Those in the folder `docs` are the same, for readers of the repository.
//!
//! | page | question |
//! |---|---|
//! | [`how_it_works`] | what happens to a request |
//! | [`choosing`] | which algorithm and which store |
//! | [`troubleshooting`] | everyone shares one limit, 429 after one request, headers are missing |
//! | [`production`] | what to set before it goes live |
//! | [`layers`] | in which order with CORS, timeouts, compression and authentication |
//! | [`proxies`] | which address a client has behind proxies, and the usual mistakes |
//! | [`kubernetes`] | several replicas |
//! | [`connections`] | limits on connections, before TLS |
//! | [`grpc`] | limits per method in tonic |
//! | [`streams`] | messages one by one, bytes per second, and WebSockets |
//! | [`clients`] | how a client stays within a limit, and obeys a 429 |
//! | [`queues`] | requests that wait, and backpressure |
//! | [`testing`] | tests of your own limits |
//! | [`extending`] | an algorithm, a store, a backend and a key of your own |
//! | [`stores`] | Redis, PostgreSQL, Cassandra |
//! | [`fleets`] | limits of several machines that decide in memory |
//! | [`failure`] | what happens while a store is down |
//! | [`policies`] | limits in files, which are reloaded |
//! | [`policy_reference`] | what a policy file holds |
//! | [`observing`] | metrics, events, alerts and a dashboard |
//! | [`security`] | what to set against attackers |
//! | [`plans`] | quotas of plans, tiers and billing months; costs that are known at the end |
//! | [`recipes`] | short solutions |
//! | [`migrating`] | from tower's own limits, `tower-rate-limiter` and `governor`: the code before and after |
//! | [`tower_governor`] | the same from `tower_governor` |
//! | [`other_languages`] | from nginx, express-rate-limit, Bucket4j, Guava, Go and .NET |
//! | [`comparison`] | other crates, and figures |
//! | [`deciding`] | what happens when, what it costs, what it does not do, and who keeps it |

#[doc = include_str!("guide/choosing.md")]
pub mod choosing {}
#[doc = include_str!("guide/layers.md")]
pub mod layers {}
#[doc = include_str!("guide/proxies.md")]
pub mod proxies {}
#[doc = include_str!("guide/kubernetes.md")]
pub mod kubernetes {}
#[doc = include_str!("guide/connections.md")]
pub mod connections {}
#[doc = include_str!("guide/grpc.md")]
pub mod grpc {}
#[doc = include_str!("guide/streams.md")]
pub mod streams {}
#[doc = include_str!("guide/clients.md")]
pub mod clients {}
#[doc = include_str!("guide/queues.md")]
pub mod queues {}
#[doc = include_str!("guide/testing.md")]
pub mod testing {}
#[doc = include_str!("guide/extending.md")]
pub mod extending {}
#[doc = include_str!("guide/stores.md")]
pub mod stores {}
#[doc = include_str!("guide/fleets.md")]
pub mod fleets {}
#[doc = include_str!("guide/failure.md")]
pub mod failure {}
#[doc = include_str!("guide/policies.md")]
pub mod policies {}
#[doc = include_str!("guide/policy_reference.md")]
pub mod policy_reference {}
#[doc = include_str!("guide/observing.md")]
pub mod observing {}
#[doc = include_str!("guide/security.md")]
pub mod security {}
#[doc = include_str!("guide/plans.md")]
pub mod plans {}
#[doc = include_str!("guide/recipes.md")]
pub mod recipes {}
#[doc = include_str!("guide/migrating.md")]
pub mod migrating {}
#[doc = include_str!("guide/tower_governor.md")]
pub mod tower_governor {}
#[doc = include_str!("guide/other_languages.md")]
pub mod other_languages {}
#[doc = include_str!("guide/how_it_works.md")]
pub mod how_it_works {}
#[doc = include_str!("guide/troubleshooting.md")]
pub mod troubleshooting {}
#[doc = include_str!("guide/production.md")]
pub mod production {}
#[doc = include_str!("guide/deciding.md")]
pub mod deciding {}
#[doc = include_str!("guide/comparison.md")]
pub mod comparison {}
