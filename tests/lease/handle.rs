//! The handle of a layer changes a limit for the whole fleet.

use std::time::Duration;

use tower::{Layer, service_fn};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::{HeaderKey, Headers, Quota, RateLimitLayer};

use crate::memory_fleet::{respond, response};
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
    let (here, there) = (
        here.layer(service_fn(respond)),
        there.layer(service_fn(respond)),
    );
    for service in [&here, &there] {
        assert_eq!(response(service).await.status(), 200);
    }

    let quota = Quota::per(7, Duration::from_secs(1_000_000));
    handle.set_quota(quota).await.expect("a quota");
    assert_eq!(Backend::<str>::quotas(handle.backend()), [quota]);
    let changed = response(&here).await;
    let policy = &changed.headers()["ratelimit-policy"];
    assert_eq!(policy, "\"default\";q=7;w=1000000");
    pass(30).await;
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += u64::from(response(&there).await.status() == 200);
    }
    assert_eq!(admitted, 7 - 3);
}
