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

macro_rules! pages {
    ($($page:ident)*) => {
        $(
            #[doc = include_str!(concat!("guide/", stringify!($page), ".md"))]
            pub mod $page {}
        )*
    };
}

pages! {
    choosing layers proxies kubernetes connections grpc streams clients queues testing extending
    stores fleets failure policies policy_reference observing security plans recipes migrating
    tower_governor other_languages how_it_works troubleshooting production deciding comparison
}
