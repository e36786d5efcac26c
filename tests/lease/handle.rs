//! The handle of a layer changes a limit for the whole fleet.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::{HeaderKey, Headers, Quota, RateLimitLayer};

use crate::{machine, pass};

#[tokio::test(start_paused = true)]
async fn a_quota_of_a_handle_reaches_the_fleet() {
    let store = MemoryStore::new();
    let layer = || {
        let layer = RateLimitLayer::new(HeaderKey::new("x-tenant"), machine(&store));
        layer.headers(Headers::standard())
    };
    let (here, there) = (layer(), layer());
    let handle = here.handle();
    let respond = async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()));
    let (here, there) = (
        here.layer(service_fn(respond)),
        there.layer(service_fn(respond)),
    );
    let request = || {
        let request = Request::builder().header("x-tenant", "a");
        request.body(()).expect("a request")
    };
    for service in [&here, &there] {
        let response = service
            .clone()
            .oneshot(request())
            .await
            .expect("a response");
        assert_eq!(response.status(), 200);
    }

    let quota = Quota::per(7, Duration::from_secs(1_000_000));
    handle.set_quota(quota).await.expect("a quota");
    assert_eq!(Backend::<str>::quotas(handle.backend()), [quota]);
    let response = here.clone().oneshot(request()).await.expect("a response");
    let policy = &response.headers()["ratelimit-policy"];
    assert_eq!(policy, "\"default\";q=7;w=1000000");
    pass(30).await;
    let mut admitted = 0;
    for _ in 0..10 {
        let response = there.clone().oneshot(request()).await.expect("a response");
        admitted += u64::from(response.status() == 200);
    }
    assert_eq!(admitted, 7 - 3);
}
