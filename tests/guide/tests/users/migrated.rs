//! Two programs before and after they migrate: a server from `tower_governor`, and a client from `governor` and the
//! limit of tower. What their users see is the same.

mod server {
    use axum::{Router, routing::get};

    /// One request per minute per client, in bursts of up to 5.
    pub(super) fn before() -> Router {
        use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

        let mut config = GovernorConfigBuilder::default();
        let config = config.per_second(60).burst_size(5).use_headers().finish();
        let config = config.expect("numbers above zero");
        Router::new()
            .route("/", get(async || "hello"))
            .layer(GovernorLayer::new(config))
    }

    pub(super) fn after() -> Router {
        use std::time::Duration;
        use tower_throttle::{ClientIp, Headers, Quota, RateLimitLayer, TokenBucket};

        let bucket = TokenBucket::new(Quota::per(1, Duration::from_mins(1)).burst(5));
        let limit = RateLimitLayer::new(ClientIp::peer(), bucket).headers(Headers::XRateLimitDelta);
        Router::new().route("/", get(async || "hello")).layer(limit)
    }
}

mod client {
    use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

    use tower::{BoxError, ServiceBuilder, service_fn, util::BoxCloneService};

    use crate::support::Client;

    pub(super) type Fetch = BoxCloneService<SocketAddr, u16, BoxError>;

    async fn fetch(server: SocketAddr) -> Result<u16, BoxError> {
        let from = Client([127, 0, 0, 1]);
        Ok(from.send(server, "GET /", "").await.status)
    }

    /// 4 at once per server, and for all servers 8 per tenth of a second.
    pub(super) fn before() -> Fetch {
        use governor::{Quota, RateLimiter};

        let quota = Quota::per_second(NonZeroU32::new(10).expect("10"));
        let quota = quota.allow_burst(NonZeroU32::new(4).expect("4"));
        let per_server = Arc::new(RateLimiter::keyed(quota));
        let client = ServiceBuilder::new()
            .buffer(100)
            .rate_limit(8, Duration::from_millis(100))
            .service(service_fn(move |server: SocketAddr| {
                let per_server = Arc::clone(&per_server);
                async move {
                    per_server.until_key_ready(&server).await;
                    fetch(server).await
                }
            }));
        BoxCloneService::new(client)
    }

    pub(super) fn after() -> Fetch {
        use tower_throttle::{AsError, Global, Quota, RateLimitLayer, TokenBucket};

        let wait = Duration::from_secs(30);
        let per_server = TokenBucket::new(Quota::per_second(10).burst(4));
        let per_server = per_server.queue(100).max_wait(wait);
        let all = TokenBucket::new(Quota::per(8, Duration::from_millis(100)));
        let all = all.queue(100).max_wait(wait);
        let client = ServiceBuilder::new()
            .layer(RateLimitLayer::new(Global, all).respond(AsError))
            .layer(RateLimitLayer::new(|server: &SocketAddr| *server, per_server).respond(AsError))
            .service(service_fn(fetch));
        BoxCloneService::new(client)
    }
}

// ---- What their users see.

use std::time::Duration;

use axum::{Router, routing::get};
use tokio::{task::JoinSet, time::Instant};
use tower::ServiceExt;

use crate::support::{Client, serve};

#[tokio::test]
async fn the_server_admits_the_same_burst_per_client_and_says_what_is_left() {
    for app in [server::before(), server::after()] {
        let address = serve(app).await;
        for client in [Client([127, 0, 0, 1]), Client([127, 0, 0, 3])] {
            let first = client.send(address, "GET /", "").await;
            assert_eq!(first.header("x-ratelimit-limit"), "5");
            assert_eq!(first.header("x-ratelimit-remaining"), "4");
            let statuses = client.statuses(address, "GET /", "", 4).await;
            assert_eq!(statuses, [200; 4]);
            let denied = client.send(address, "GET /", "").await;
            assert_eq!(denied.status, 429);
            // Almost 60 s, which the one rounds down and the other one up.
            let wait: u64 = denied.header("retry-after").parse().expect("seconds");
            assert!((50..=60).contains(&wait), "{denied:?}");
        }
    }
}

/// How long so many calls to each of two servers take, of which none fails.
async fn duration(client: client::Fetch, calls: usize) -> Duration {
    let app = || Router::new().route("/", get(async || "hello"));
    let servers = [serve(app()).await, serve(app()).await];
    let begun = Instant::now();
    let mut statuses = JoinSet::new();
    for n in 0..2 * calls {
        statuses.spawn(client.clone().oneshot(servers[n % 2]));
    }
    for status in statuses.join_all().await {
        assert_eq!(status.expect("no call fails"), 200);
    }
    begun.elapsed()
}

#[tokio::test]
async fn the_client_holds_its_calls_up_and_none_fails() {
    // Of 9 calls to a server 4 go at once, and the others one per 100 ms.
    let expected = Duration::from_millis(500);
    for took in [
        duration(client::before(), 9).await,
        duration(client::after(), 9).await,
    ] {
        assert!(took >= expected, "{took:?}");
    }
}
