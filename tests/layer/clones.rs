//! Settings of a clone are its own.

use std::{fmt::Debug, time::Duration};

use http::{Request, Response};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    FixedWindow, Global, Headers, Local, Quota, RateLimitLayer, TokenBucket,
    concurrency::ConcurrencyLimitLayer,
    layer::OnStoreError,
    queue::{Order, WhenFull},
};

/// Whether a change of a clone shows in the original, or does not show in the clone.
fn leaks<T: Clone + Debug>(original: &T, change: impl FnOnce(T) -> T) -> bool {
    let before = format!("{original:?}");
    let changed = change(original.clone());
    before != format!("{original:?}") || before == format!("{changed:?}")
}

type Rate = RateLimitLayer<Global, Local<TokenBucket>>;
type InFlight = ConcurrencyLimitLayer<Global>;
/// The name of a setting, and a change of it.
type Setting<T> = (&'static str, fn(T) -> T);

/// Shows promise 50.
#[test]
fn a_setting_of_a_cloned_layer_does_not_change_the_original() {
    let rate: Rate = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_day(1)).queue(1));
    let settings: [Setting<Rate>; 7] = [
        ("name", |layer| layer.name("other")),
        ("shadow", Rate::shadow),
        ("share_decision", Rate::share_decision),
        ("on_store_error", |layer| {
            layer.on_store_error(OnStoreError::Deny)
        }),
        ("order", |layer| layer.order(Order::Newest)),
        ("seats", |layer| layer.seats(3)),
        ("when_full", |layer| layer.when_full(WhenFull::Deny)),
    ];
    for (setting, change) in settings {
        assert!(!leaks(&rate, change), "RateLimitLayer::{setting}");
    }
    let in_flight: InFlight = ConcurrencyLimitLayer::new(Global, 1).queue(1);
    let settings: [Setting<InFlight>; 8] = [
        ("name", |layer| layer.name("other")),
        ("shadow", InFlight::shadow),
        ("queue", |layer| layer.queue(7)),
        ("max_wait", |layer| layer.max_wait(Duration::ZERO)),
        ("unavailable", InFlight::unavailable),
        ("retry_after", |layer| layer.retry_after(Duration::ZERO)),
        ("seats", |layer| layer.seats(3)),
        ("when_full", |layer| layer.when_full(WhenFull::Deny)),
    ];
    for (setting, change) in settings {
        assert!(
            !leaks(&in_flight, change),
            "ConcurrencyLimitLayer::{setting}"
        );
    }
}

/// The name that a layer states.
async fn stated<L>(layer: &L) -> String
where
    L: Layer<tower::util::BoxCloneService<Request<()>, Response<String>, BoxError>>,
    L::Service: tower::Service<Request<()>, Error = BoxError>,
    <L::Service as tower::Service<Request<()>>>::Response: Into<Stated>,
{
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(String::new())));
    let inner = tower::util::BoxCloneService::new(inner);
    let response = layer.layer(inner).oneshot(Request::new(())).await.unwrap();
    response.into().0
}

/// `RateLimit` as it is in a response.
struct Stated(String);

impl<B> From<Response<B>> for Stated {
    fn from(response: Response<B>) -> Self {
        Self(response.headers()["ratelimit"].to_str().unwrap().to_owned())
    }
}

/// Shows promise 50.
#[tokio::test]
async fn a_renamed_clone_has_the_same_limit_and_states_its_own_name() {
    let window = FixedWindow::new(Quota::per_day(5));
    let layer = RateLimitLayer::new(Global, window)
        .name("first")
        .headers(Headers::Draft11);
    let other = layer.clone().name("second");
    let remaining = async |layer| stated(layer).await.split(";t=").next().unwrap().to_owned();
    assert_eq!(remaining(&layer).await, r#""first";r=4"#);
    assert_eq!(remaining(&other).await, r#""second";r=3"#);
    // A change of the quota shows under both names, also if it is made by the handle of one.
    layer.handle().set_quota(Quota::per_day(10)).unwrap();
    assert_eq!(remaining(&other).await, r#""second";r=7"#);
    other.handle().set_quota(Quota::per_day(20)).unwrap();
    assert_eq!(remaining(&layer).await, r#""first";r=16"#);
    assert_eq!(layer.handle().counts(), other.handle().counts());
    assert_eq!(layer.handle().counts().admitted, 4);

    let layer = ConcurrencyLimitLayer::new(Global, 5)
        .name("first")
        .headers(Headers::Draft11);
    let other = layer.clone().name("second");
    assert_eq!(stated(&layer).await, r#""first";r=4"#);
    assert_eq!(stated(&other).await, r#""second";r=4"#);
    assert_eq!(other.handle().counts().admitted, 2);
}
