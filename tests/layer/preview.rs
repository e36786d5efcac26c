//! Whether a request would be limited, and by which rule, without counting it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::StatusCode;
use tower_throttle::key::{Extracted, Rejection};
use tower_throttle::layer::Preview;
use tower_throttle::{
    AsError, ConcurrencyLimitLayer, FixedWindow, Quota, RateLimitLayer, RateLimited, SlidingLog,
    TokenBucket, Verdict,
};

/// The user of a request, which is its number. Request 0 is rejected, and request 1 not limited.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as a layer calls it")]
fn user(request: &u64) -> Extracted<u64> {
    match *request {
        0 => Extracted::Reject(Rejection::new(StatusCode::UNAUTHORIZED, "no user")),
        1 => Extracted::Skip,
        user => Extracted::Key(user),
    }
}

const ANN: u64 = 2;
const BOB: u64 = 3;
const DAY: Quota = Quota::per_day(5);

/// What is limited: the name and the quota of each limit.
fn limited(previews: Result<Vec<Preview>, RateLimited>) -> Vec<(Arc<str>, Option<Quota>)> {
    let previews = previews.expect("it has a key").into_iter();
    let limited = previews.filter(Preview::is_limited);
    limited.map(|by| (by.name, by.quota)).collect()
}

/// Shows promise 322.
#[test]
fn a_preview_names_the_rule_that_decides_and_counts_nothing() {
    let both = (
        TokenBucket::new(Quota::per_second(9)),
        FixedWindow::new(DAY),
    );
    let layer = RateLimitLayer::new(user, both).name("api").respond(AsError);
    let ask = |request: u64| layer.preview(&request).now_or_never().expect("in process");
    for _ in 0..20 {
        let previews = ask(ANN).expect("a key");
        let [preview] = &previews[..] else {
            panic!("{previews:?}");
        };
        assert!(!preview.is_limited());
        assert_eq!(preview.decision.remaining(), 9);
    }
    drop(layer.handle().charge(&ANN, 5));
    assert_eq!(limited(ask(ANN)), [("api".into(), Some(DAY))]);
    assert_eq!(limited(ask(BOB)), []);
    assert_eq!(ask(1).expect("no rejection"), []);
    let rejected = ask(0).expect_err("no user");
    assert_eq!(rejected.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        layer.handle().counts(),
        tower_throttle::layer::Counts::default()
    );
}

/// Shows promise 322.
#[test]
fn each_of_several_limits_is_previewed() {
    let days = RateLimitLayer::new(user, FixedWindow::new(DAY)).name("days");
    let logs = RateLimitLayer::new(user, SlidingLog::new(Quota::per_hour(2))).name("hours");
    let flights = ConcurrencyLimitLayer::new(user, 3).name("flights");
    let layer = days.and(logs).and(flights).respond(AsError);
    let names = |request: u64| {
        let previews = layer.preview(&request).now_or_never().expect("in process");
        let previews = previews.expect("a key").into_iter();
        let named = previews.map(|preview| (preview.name.to_string(), preview.is_limited()));
        named.collect::<Vec<_>>()
    };
    let all = |days, hours| {
        [
            ("days".to_owned(), days),
            ("hours".to_owned(), hours),
            ("flights".to_owned(), false),
        ]
    };
    assert_eq!(names(ANN), all(false, false));
    let both = layer.handle().first();
    drop(both.second().charge(&ANN, 2));
    assert_eq!(names(ANN), all(false, true));
    drop(both.first().charge(&ANN, 5));
    assert_eq!(names(ANN), all(true, true));
    assert_eq!(names(BOB), all(false, false));
}

/// Shows promise 322.
#[test]
fn a_request_that_would_wait_in_line_or_is_in_shadow_is_told_so() {
    let layer = RateLimitLayer::new(user, TokenBucket::new(Quota::per_second(1)))
        .queue(5)
        .respond(AsError);
    drop(layer.handle().charge(&ANN, 1));
    let ask = |layer: &RateLimitLayer<_, _, _>| {
        let previews = layer.preview(&ANN).now_or_never().expect("in process");
        previews.expect("a key").remove(0)
    };
    let preview = ask(&layer);
    assert!(
        matches!(preview.decision.verdict, Verdict::Wait(wait) if wait <= Duration::from_secs(1))
    );
    assert!(preview.is_limited());
    let shadow = layer.clone().shadow();
    let preview = ask(&shadow);
    assert!(preview.shadow && !preview.is_limited());
}
