//! The handle of a layer changes a key for the whole fleet.

use std::time::Duration;

use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::{HeaderKey, Lockout, Quota, RateLimitLayer};

use crate::memory_fleet::{respond, response};
use crate::{builder, machine, pass, window};

/// The status of a request of the key.
async fn status<S>(service: &S) -> u16
where
    S: Service<Request<()>, Response = Response<String>, Error: std::fmt::Debug> + Clone,
{
    response(service).await.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_penalty_a_refund_a_reset_and_a_quota_of_a_handle_reach_the_fleet() {
    let store = MemoryStore::new();
    let here = RateLimitLayer::new(HeaderKey::new("x-tenant"), machine(&store));
    let there = RateLimitLayer::new(HeaderKey::new("x-tenant"), machine(&store));
    let (handle, other) = (here.handle(), there.handle());
    let service = there.layer(service_fn(respond));
    let key = HeaderKey::key("a");
    let remaining = async || {
        let peeked = other.peek(&key, 0).await;
        peeked.expect("a decision").remaining()
    };

    assert_eq!(status(&service).await, 200);
    handle.penalise(&key, 60).await.expect("a penalty");
    pass(3).await;
    assert_eq!(status(&service).await, 200);
    pass(3).await;
    assert_eq!(remaining().await, 100 - 60 - 2);

    handle.refund(&key, 10).await.expect("a refund");
    pass(3).await;
    assert_eq!(status(&service).await, 200);
    pass(3).await;
    assert_eq!(remaining().await, 100 - 50 - 3);

    handle.penalise(&key, 1_000).await.expect("a penalty");
    pass(3).await;
    // It is not in use, so the other machine learns of the penalty after its first request.
    let _ = status(&service).await;
    pass(3).await;
    assert_eq!(remaining().await, 0);
    handle.reset(&key).await.expect("a reset");
    pass(3).await;
    let _ = status(&service).await;
    pass(3).await;
    assert_eq!(status(&service).await, 200);

    let quota = Quota::per(7, Duration::from_secs(1_000_000));
    handle.set_quota(quota).await.expect("a quota");
    assert_eq!(Backend::<str>::quotas(handle.backend()), [quota]);
    pass(30).await;
    let _ = status(&service).await;
    pass(30).await;
    assert!(remaining().await < 7, "{}", remaining().await);
}

#[tokio::test(start_paused = true)]
async fn a_ban_and_a_pardon_of_a_handle_reach_the_fleet() {
    let store = MemoryStore::new();
    let layer = || {
        let logins = builder(&store).build("logins", Lockout::new(Quota::per_hour(10)));
        RateLimitLayer::new(HeaderKey::new("x-tenant"), logins.expect("a limit"))
    };
    let (here, there) = (layer(), layer());
    let handle = here.handle();
    let service = there.layer(service_fn(respond));
    let key = HeaderKey::key("a");
    assert_eq!(status(&service).await, 200);
    pass(3).await;
    let hour = Duration::from_secs(3_600);
    handle.ban(&key, hour).await.expect("a ban");
    pass(3).await;
    let _ = status(&service).await;
    pass(3).await;
    assert_eq!(status(&service).await, 429);
    handle.pardon(&key).await.expect("a pardon");
    pass(3).await;
    let _ = status(&service).await;
    pass(3).await;
    assert_eq!(status(&service).await, 200);
}

#[test]
fn a_lockout_of_denials_is_refused() {
    let locked = Lockout::new(Quota::per_hour(10)).after_denials_of(window());
    let refused = builder(&MemoryStore::new()).build("api", locked);
    let error = refused.expect_err("refused").to_string();
    assert_eq!(
        error,
        "a lockout that counts denials in `Synced` is not possible; use `Cas`, or `Local` on each machine"
    );
}

/// As with a configured number of machines, which `a_quiet_machine_may_use_its_share` has.
#[tokio::test(start_paused = true)]
async fn a_quiet_machine_has_a_share_of_the_machines_that_are_counted() {
    let store = MemoryStore::new();
    let machines = [(); 2].map(|()| builder(&store).build("api", window()).expect("a limit"));
    let [busy, quiet] = &machines;
    // Both learn that there are two.
    for _ in 0..3 {
        crate::admit(busy, 1).await;
        crate::admit(quiet, 1).await;
        pass(2).await;
    }
    assert_eq!((busy.counts().nodes, quiet.counts().nodes), (2, 2));
    crate::take_all(busy).await;
    pass(3).await;
    crate::admit(quiet, 1).await;
    pass(3).await;
    assert_eq!(crate::take_all(quiet).await, 50 - 4);
}
