//! Reading limits and changing them while requests are served.

use std::{
    borrow::Cow,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use tokio::sync::oneshot;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, ClientIp, Decision, FixedWindow, Global, HeaderKey, Headers, Quota, RateLimitLayer,
    StoreError, TokenBucket,
    key::{
        BearerToken, Client, ExtensionKey, Extracted, FromExtension, KeyExtractor, KeyType, Secret,
    },
    store::{Backend, IntoBackend, Op},
};

async fn unit(_: &'static str) -> Result<(), BoxError> {
    Ok(())
}

/// Shows promise 56.
#[tokio::test]
async fn a_handle_peeks_resets_charges_and_refunds() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| Cow::Borrowed(*who),
        FixedWindow::new(Quota::per_day(10)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(unit));
    for _ in 0..4 {
        service.clone().oneshot("ann").await.unwrap();
    }
    let left = async |who: &str| handle.peek(who, 0).await.unwrap().remaining();
    assert_eq!((left("ann").await, left("bob").await), (6, 10));
    handle.refund("ann", 1).await.unwrap();
    assert_eq!(left("ann").await, 7);
    handle.charge("ann", 100).await.unwrap();
    assert_eq!(left("ann").await, 0);
    assert!(handle.peek("ann", 1).await.unwrap().is_denied());
    assert!(service.clone().oneshot("ann").await.is_err());
    handle.reset("ann").await.unwrap();
    assert_eq!(left("ann").await, 10);
    assert_eq!(left("bob").await, 10);
}

/// Shows promise 56.
#[tokio::test]
async fn a_new_quota_keeps_what_was_used() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| Cow::Borrowed(*who),
        FixedWindow::new(Quota::per_day(10)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(unit));
    for _ in 0..4 {
        service.clone().oneshot("ann").await.unwrap();
    }
    handle.set_quota(Quota::per_day(6)).unwrap();
    assert_eq!(handle.peek("ann", 0).await.unwrap().remaining(), 2);
    assert_eq!(handle.peek("bob", 0).await.unwrap().remaining(), 6);
}

#[tokio::test]
async fn headers_state_a_quota_that_was_set_on_the_limiter_after_a_refresh() {
    let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(5)));
    let layer = layer.headers(Headers::Draft11);
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, BoxError>(Response::new(String::new()))
    }));
    let stated = async || {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
        policy.to_owned()
    };
    assert_eq!(stated().await, r#""default";q=5;w=86400"#);
    let handle = layer.handle();
    handle.backend().set_quota(Quota::per_day(7)).unwrap();
    handle.refresh_policies();
    assert_eq!(stated().await, r#""default";q=7;w=86400"#);
}

/// Shows promise 56.
#[tokio::test]
async fn outcomes_are_counted() {
    let layer = RateLimitLayer::new(
        |who: &&'static str| match *who {
            "root" => Ok(Extracted::Skip),
            "" => Err(http::StatusCode::BAD_REQUEST),
            who => Ok(Extracted::Key(Cow::Borrowed(who))),
        },
        FixedWindow::new(Quota::per_day(2)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(unit));
    for who in ["ann", "ann", "ann", "bob", "root", "root", "", "ann"] {
        let _ = service.clone().oneshot(who).await;
    }
    let counts = handle.counts();
    assert_eq!((counts.admitted, counts.denied), (3, 2));
    assert_eq!((counts.skipped, counts.rejected), (2, 1));
    assert_eq!((counts.waited, counts.store_errors), (0, 0));
}

/// A custom extractor.
#[derive(Clone)]
struct Modulo(u64);

impl KeyExtractor<u64> for Modulo {
    type Key = u64;

    fn extract(&self, request: &u64) -> Extracted<u64> {
        Extracted::Key(request % self.0)
    }
}

impl KeyType<()> for Modulo {
    type Key = u64;
}

#[tokio::test]
async fn a_handle_takes_the_keys_of_a_custom_extractor() {
    let layer = RateLimitLayer::new(Modulo(10), FixedWindow::new(Quota::per_day(3)))
        .cost(|n: &u64| n / 10)
        .skip(|n: &u64| *n == 0)
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    service.oneshot(27).await.unwrap();
    assert_eq!(handle.peek_now(&7, 0).remaining(), 1);
    assert_eq!(handle.peek_now(&2, 0).remaining(), 3);
}

#[test]
fn handles_know_the_key_type_of_every_extractor() {
    fn keys<K, M>(_: &K) -> PhantomData<K::Key>
    where
        K: KeyType<M>,
    {
        PhantomData
    }
    let _: PhantomData<()> = keys(&Global);
    let _: PhantomData<Client> = keys(&ClientIp::peer());
    let _: PhantomData<(Client, ())> = keys(&(ClientIp::peer(), Global));
    let _: PhantomData<((), Client, u8)> = keys(&(Global, ClientIp::peer(), |n: &u8| *n));
    let _: PhantomData<Secret> = keys(&HeaderKey::new("x-api-key"));
    let _: PhantomData<Secret> = keys(&BearerToken::new());
    let _: PhantomData<ExtensionKey<u8>> = keys(&FromExtension::<u8>::new());
    let _: PhantomData<Option<String>> = keys(&|req: &String| Some(req.clone()));
    let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(3)))
        .cost(|_: &u8| 1)
        .skip(|_: &u8| false);
    drop(layer.handle().reset(&()));
}

#[tokio::test]
async fn keys_may_be_borrowed() {
    let layer = RateLimitLayer::new(
        |name: &String| name.clone(),
        FixedWindow::new(Quota::per_day(10)),
    )
    .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |_: String| Ok::<_, BoxError>(())));
    service.oneshot("alice".to_owned()).await.unwrap();
    assert_eq!(handle.peek_now("alice", 0).remaining(), 9);
    assert_eq!(handle.peek_now(&"alice".to_owned(), 0).remaining(), 9);
    drop(handle.charge("alice", 100));
    assert!(handle.peek_now("alice", 1).is_denied());
    drop(handle.reset("alice"));
    assert_eq!(handle.peek_now("alice", 0).remaining(), 10);
}

/// Local changes happen even if their futures are never polled.
///
/// Shows promise 56.
#[test]
fn a_local_change_is_complete_when_the_call_returns() {
    let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(10)));
    let handle = layer.handle();
    drop(handle.charge(&(), 7));
    assert_eq!(handle.peek_now(&(), 0).remaining(), 3);
    drop(handle.refund(&(), 4));
    assert_eq!(handle.peek_now(&(), 0).remaining(), 7);
    drop(handle.reset(&()));
    assert_eq!(handle.peek_now(&(), 0).remaining(), 10);
}

/// Completes calls on a signal.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<oneshot::Receiver<()>>>>);

impl IntoBackend for Slow {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

impl<K: ?Sized> Backend<K> for Slow {
    type Future = Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send>>;

    fn apply(&self, _: &K, _: Op) -> Self::Future {
        let go = self.0.lock().unwrap().pop();
        Box::pin(async move {
            go.unwrap().await.unwrap();
            Err(StoreError::new("lost", true))
        })
    }

    fn quotas(&self) -> Vec<Quota> {
        Vec::new()
    }
}

/// Shows promise 56.
#[tokio::test]
async fn an_awaited_remote_change_returns_its_error() {
    let slow = Slow::default();
    let (go, wait) = oneshot::channel();
    slow.0.lock().unwrap().push(wait);
    let layer = RateLimitLayer::new(Global, slow);
    let mut change = tokio_test::task::spawn(layer.handle().reset(&()));
    tokio_test::assert_pending!(change.poll());
    go.send(()).unwrap();
    assert_eq!(change.await, Err(StoreError::new("lost", true)));
}

/// An extractor that ignores a proxy header in every request.
#[derive(Clone)]
struct IgnoresProxies;

impl KeyExtractor<u64> for IgnoresProxies {
    type Key = u64;

    fn extract(&self, request: &u64) -> Extracted<u64> {
        Extracted::Key(*request)
    }

    fn unread_proxy_header(&self, _: &u64) -> bool {
        true
    }
}

impl KeyType<()> for IgnoresProxies {
    type Key = u64;
}

#[test]
fn ignored_proxy_headers_are_sampled_and_counted() {
    for shares in [false, true] {
        let bucket = TokenBucket::new(Quota::per_second(1_000_000));
        let mut layer = RateLimitLayer::new(IgnoresProxies, bucket).respond(AsError);
        if shares {
            layer = layer.share_decision(); // Takes another path through the service.
        }
        let handle = layer.handle();
        let service = layer.layer(service_fn(async |_: u64| Ok::<_, BoxError>(())));
        let mut counted = Vec::new();
        for n in 0..2_100 {
            let mut call = tokio_test::task::spawn(service.clone().oneshot(n));
            tokio_test::assert_ready!(call.poll()).unwrap();
            if [14, 15, 1_023, 1_024, 2_099].contains(&n) {
                counted.push(handle.counts().unread_proxy_headers);
            }
        }
        assert_eq!(counted, [15, 16, 16, 17, 18], "{shares}");
    }
    // With a setting, a key says what it says without.
    let bucket = TokenBucket::new(Quota::per_second(1_000_000));
    let layer = RateLimitLayer::new(|n: &u64| *n, bucket).cost(|_: &u64| 1);
    let layer = layer.respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |_: u64| Ok::<_, BoxError>(())));
    let mut call = tokio_test::task::spawn(service.oneshot(1));
    tokio_test::assert_ready!(call.poll()).unwrap();
    assert_eq!(handle.counts().unread_proxy_headers, 0);
}
