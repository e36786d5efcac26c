//! Without timers requests do not wait.

use std::time::Duration;

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Global, RateLimitLayer, RateLimited,
    store::{Op, Receipt},
};

use crate::support::{Script, wait};

#[tokio::test]
async fn without_timers_requests_are_denied_with_retry_after_and_take_nothing() {
    let script = Script::now([wait(Duration::from_secs(7))]);
    let layer = RateLimitLayer::new(Global, script.clone()).respond(AsError);
    let unit = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
    let error = layer.layer(unit).oneshot(()).await.unwrap_err();
    let limited = error.downcast::<RateLimited>().unwrap();
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(script.ops(), [Op::Take(1), Op::Cancel(1, Receipt::NOW)]);
}
