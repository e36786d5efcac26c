//! The types of layers, services and futures can be named.

use std::future::ready;

use http::{Request, Response};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AnyAlgorithm, AsError, ClientIp, ConcurrencyLimitLayer, Global, Handle, LeakyBucket, Local,
    Quota, RateLimit, RateLimitLayer, SlidingLog, TokenBucket,
    key::{Client, KeyExtractor},
    layer::{Rate, ResponseFuture},
    respond::Responder,
    store::Backend,
};

/// A limit that a library may return: no type is from another crate.
fn per_client() -> RateLimitLayer<ClientIp, Local<TokenBucket>> {
    RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_second(10)))
}

struct App<S> {
    search: RateLimit<S, ClientIp, Local<TokenBucket>, Responder>,
    handle: Handle<Client, Local<TokenBucket>>,
    shared: RateLimitLayer<Global, Local<TokenBucket>, Responder<AsError>>,
}

#[test]
fn tower_governor_49_and_miden_839_every_type_can_be_named() {
    let layer = per_client();
    let app = App {
        handle: layer.handle(),
        search: layer.layer(()),
        shared: RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(1)))
            .respond(AsError),
    };
    let _: Client = ClientIp::peer().key([192, 0, 2, 1].into());
    assert_eq!(app.handle.counts().admitted, 0);
    drop((app.search, app.shared));
}

/// The type of a layer names the key and the algorithm, as `new` was given them.
#[test]
fn a_field_names_the_key_and_the_algorithm() {
    struct Limits {
        limit: RateLimitLayer<ClientIp, Local<TokenBucket>>,
        in_flight: ConcurrencyLimitLayer<ClientIp>,
    }

    let limits = Limits {
        limit: RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_second(10))),
        in_flight: ConcurrencyLimitLayer::new(ClientIp::peer(), 3),
    };
    let admitted = |counts: tower_throttle::layer::Counts| counts.admitted;
    assert_eq!(admitted(limits.limit.handle().counts()), 0);
    assert_eq!(admitted(limits.in_flight.handle().counts()), 0);
}

/// Shows promise 49.
#[test]
fn tower_governor_24_the_body_type_of_the_service_is_kept() {
    fn body<B: Default + 'static>() {
        fn same<S, B>(_: &S)
        where
            S: Service<Request<()>, Response = Response<B>>,
        {
        }
        let inner = service_fn(async |_: Request<()>| Ok::<_, ()>(Response::new(B::default())));
        same::<_, B>(&per_client().layer(inner));
    }
    body::<axum::body::Body>();
    body::<tonic::body::Body>();
    body::<http_body_util::Empty<bytes::Bytes>>();
    body::<http_body_util::Full<bytes::Bytes>>();
    body::<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::io::Error>>();
    body::<String>();
    body::<()>();
}

/// The solution for branches, whose types differ otherwise.
#[test]
fn branches_with_different_algorithms_have_one_type() {
    for strict in [false, true] {
        let limit = if strict {
            AnyAlgorithm::from(SlidingLog::new(Quota::per_second(10)))
        } else {
            AnyAlgorithm::from(TokenBucket::new(Quota::per_second(10)))
        };
        let layer: RateLimitLayer<ClientIp, Local<AnyAlgorithm>> =
            RateLimitLayer::new(ClientIp::peer(), limit);
        assert_eq!(layer.handle().counts().admitted, 0);
    }
}

#[test]
fn the_key_type_of_an_extractor_can_be_named() {
    fn wrap<Req, K: KeyExtractor<Req, Key = Client>>(_: &K) {}
    wrap::<Request<()>, _>(&ClientIp::peer());
}

#[test]
fn the_future_can_be_named() {
    fn named<S, K, L, R, Req>(_: Option<ResponseFuture<S, K, Rate<L>, R, Req>>)
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
    }
    let _ = named::<tower_test::mock::Mock<u8, u8>, Global, Local<TokenBucket>, Responder, u8>;
}

/// Many requests may wait at once. A task of tokio with this future takes 384 bytes: its allocations are
/// multiples of 128 bytes.
#[test]
fn a_waiting_request_is_small() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(5);
    let layer = RateLimitLayer::new(Global, bucket).respond(AsError);
    let mut service = layer.layer(service_fn(|(): ()| ready(Ok::<_, BoxError>(()))));
    let future = service.call(());
    assert!(size_of_val(&future) <= 136, "{}", size_of_val(&future));
}

/// The solution that the compile error suggests for an error type without `From<RateLimited>`.
#[tokio::test]
async fn an_error_of_another_crate_is_boxed_below_the_limit() {
    #[derive(Debug)]
    struct ForeignError;

    impl std::fmt::Display for ForeignError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("foreign")
        }
    }

    impl std::error::Error for ForeignError {}

    let service = tower::ServiceBuilder::new()
        .layer(per_minute().respond(AsError))
        .layer(tower::util::MapErrLayer::new(BoxError::from))
        .service(service_fn(async |(): ()| Err::<(), _>(ForeignError)));
    let error = service.clone().oneshot(()).await.unwrap_err();
    assert_eq!(error.to_string(), "foreign");
    let error = service.oneshot(()).await.unwrap_err();
    assert!(error.is::<tower_throttle::RateLimited>());
}

fn per_minute() -> RateLimitLayer<Global, Local<TokenBucket>> {
    RateLimitLayer::new(Global, TokenBucket::new(Quota::per_minute(1)))
}

/// A layer that makes its table has the type of one that is given a table.
#[test]
fn a_layer_of_an_algorithm_and_one_of_its_table_have_one_type_and_say_what_they_are() {
    let bucket = || TokenBucket::new(Quota::per_second(1));
    let layers = [
        RateLimitLayer::new(Global, bucket()),
        RateLimitLayer::new(Global, Local::new(bucket())),
    ];
    let _ = [layers[0].handle(), layers[1].handle()];
    for layer in layers {
        let text = format!("{layer:?}");
        assert!(text.starts_with("RateLimitLayer {"), "{text}");
    }
}
