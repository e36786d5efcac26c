//! Without timers nothing waits.

use std::time::Duration;

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, RateLimitLayer, RateLimited, store::Op};

use crate::support::{Script, wait};

#[tokio::test]
async fn who_would_have_to_wait_is_told_how_long_and_pays_nothing() {
    let script = Script::now([wait(Duration::from_secs(7))]);
    let layer = RateLimitLayer::new(Global, script.clone()).respond(AsError);
    let unit = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
    let error = layer.layer(unit).oneshot(()).await.unwrap_err();
    let limited = error.downcast::<RateLimited>().unwrap();
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(script.asked(), [Op::Take(1), Op::Refund(1)]);
}
