//! Requests wait without the feature `tokio`.

use std::time::{Duration, Instant};

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, RateLimitLayer, store::Op};

use crate::support::{Script, wait};

/// Shows promise 35.
#[tokio::test]
async fn without_the_feature_tokio_a_request_waits_for_its_turn() {
    const TURN: Duration = Duration::from_millis(5);

    let script = Script::now([wait(TURN)]);
    let layer = RateLimitLayer::new(Global, script.clone()).respond(AsError);
    let unit = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
    let start = Instant::now();
    layer.layer(unit).oneshot(()).await.unwrap();
    // The clock may be 0.1 ms ahead.
    assert!(start.elapsed() >= TURN - Duration::from_micros(100));
    assert_eq!(script.ops(), [Op::Take(1)]);
}
