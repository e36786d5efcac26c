//! The response to a denied request.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use tonic_types::StatusExt;
use tower_throttle::{
    Decision, Global, Headers, ProblemJson, Quota, RateLimitLayer, RateLimited, Verdict,
    respond::{Respond, Standard},
};

use crate::support::{Gone, Says, ask, lines, request};

fn denying() -> RateLimitLayer<Global, Says> {
    let denied = Decision::new(Verdict::Deny, 10, 0, Some(1_500_000_000), 60_000_000_000);
    RateLimitLayer::new(Global, Says(denied, vec![Quota::per_minute(10)])).name("api")
}

fn grpc() -> Request<()> {
    let headers = [
        ("content-type", "application/grpc+proto"),
        ("te", "trailers"),
    ];
    let mut request = request(None, &headers);
    *request.method_mut() = http::Method::POST;
    request
}

/// Shows promise 73.
#[tokio::test]
async fn by_default_429_with_retry_after_and_no_body() {
    let response = ask(&denying(), Request::new(())).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(lines(&response, "retry-after"), ["2"]);
    assert_eq!(response.body(), "");
}

/// What a response tells its client: in seconds, in each place.
fn told(response: &Response<String>) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let limited = response.extensions().get::<RateLimited>().unwrap();
    let wait = limited.retry_after().unwrap();
    let mut told = vec![(wait + Duration::from_nanos(999_999_999)).as_secs()];
    let text = limited.to_string();
    let text = text.strip_prefix("rate limit exceeded, retry in ");
    told.push(number(text.unwrap().strip_suffix(" s").unwrap()));
    told.push(number(lines(response, "retry-after")[0]));
    if let [line] = lines(response, "ratelimit")[..] {
        told.push(number(line.rsplit_once("t=").unwrap().1));
    }
    if let [line] = lines(response, "x-ratelimit-reset")[..] {
        told.push(number(line));
    }
    if let [line] = lines(response, "grpc-retry-pushback-ms")[..] {
        let found = u128::from(number(line));
        assert_eq!(found, wait.as_nanos().div_ceil(1_000_000));
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        let delay = status.get_details_retry_info().unwrap().retry_delay;
        assert_eq!(delay, Some(wait));
    }
    if response.body().starts_with("wait ") {
        told.push(number(&response.body()[5..]));
    }
    told
}

/// Five clients that are to wait for 50 s are told five times within the next 10 s, each of them everywhere.
///
/// Shows promise 630.
#[tokio::test]
async fn denied_clients_are_told_times_that_lie_apart_and_agree_everywhere() {
    let denied = Decision::new(Verdict::Deny, 10, 0, Some(50_000_000_000), 60_000_000_000);
    let says = || RateLimitLayer::new(Global, Says(denied, vec![Quota::per_minute(10)]));
    let in_body = |_: &Request<()>, denied: &RateLimited| {
        let wait = denied
            .retry_after()
            .unwrap()
            .as_nanos()
            .div_ceil(1_000_000_000);
        Response::new(format!("wait {wait}"))
    };
    macro_rules! check {
        ($layer:expr, $places:expr, $ask:expr) => {{
            let layer = $layer;
            let mut seconds = Vec::new();
            for _ in 0..5 {
                let told = told(&ask(&layer, $ask).await);
                assert_eq!(told.len(), $places, "{told:?}");
                assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
                seconds.push(told[0]);
            }
            seconds.sort_unstable();
            seconds
        }};
    }
    let exact = check!(says().headers(Headers::Draft11), 4, Request::new(()));
    assert_eq!(exact, [50; 5], "without it all come back at once");
    for seconds in [
        check!(says().jitter(20), 3, Request::new(())),
        check!(
            says().jitter(20).headers(Headers::Draft11),
            4,
            Request::new(())
        ),
        check!(
            says().headers(Headers::XRateLimitDelta).jitter(20),
            4,
            Request::new(())
        ),
        check!(says().jitter(20).respond(in_body), 4, Request::new(())),
        check!(says().jitter(20), 3, grpc()),
    ] {
        assert!(seconds[0] >= 50 && seconds[4] <= 60, "{seconds:?}");
        let is_right = seconds.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(is_right, "{seconds:?}");
    }
}

/// Shows promise 75.
#[tokio::test]
async fn a_problem_has_its_registered_type() {
    let response = ask(&denying().respond(ProblemJson), Request::new(())).await;
    let found = lines(&response, "content-type");
    assert_eq!(found, ["application/problem+json"]);
    assert_eq!(lines(&response, "retry-after"), ["2"]);
    let body: serde_json::Value = serde_json::from_str(response.body()).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "violated-policies": ["api"],
        })
    );
}

#[tokio::test]
async fn a_closure_sees_the_request_and_its_response_is_kept() {
    let layer = denying().respond(|req: &Request<()>, denied: &RateLimited| {
        let mut response = Response::new(format!("{}: {denied}", req.uri()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    });
    let response = ask(&layer, Request::new(())).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.body(), "/: rate limit exceeded, retry in 2 s");
    // Added if the closure did not set it.
    assert_eq!(lines(&response, "retry-after"), ["2"]);

    let layer = denying().respond(|_: &Request<()>, _: &RateLimited| {
        let response = Response::builder().header("retry-after", "3600");
        response.body(String::new()).unwrap()
    });
    let response = ask(&layer, Request::new(())).await;
    assert_eq!(lines(&response, "retry-after"), ["3600"]);
}

/// Shows promise 73.
#[tokio::test]
async fn a_cost_above_the_capacity_gets_no_retry_after() {
    let never = Decision::new(Verdict::Deny, 10, 10, None, 0);
    let layer = RateLimitLayer::new(Global, Says(never, vec![Quota::per_minute(10)]));
    let http = ask(&layer, Request::new(())).await;
    assert_eq!(http.status(), 429);
    assert!(lines(&http, "retry-after").is_empty());
    let rpc = ask(&layer, grpc()).await;
    assert_eq!(lines(&rpc, "grpc-retry-pushback-ms"), ["-1"]);
    assert!(lines(&rpc, "grpc-status-details-bin").is_empty());
}

/// Shows promise 73.
#[tokio::test]
async fn a_wait_above_32_bits_is_not_truncated() {
    let denied = Decision::new(Verdict::Deny, 1, 0, Some(1 << 62), 1 << 62);
    let layer = RateLimitLayer::new(Global, Says(denied, vec![Quota::per_day(1)]));
    let http = ask(&layer, Request::new(())).await;
    assert_eq!(lines(&http, "retry-after"), ["2147483647"]);
    let rpc = ask(&layer, grpc()).await;
    assert!(lines(&rpc, "grpc-retry-pushback-ms").is_empty());
    assert_eq!(lines(&rpc, "grpc-status-details-bin").len(), 1);
}

/// Shows promise 73.
#[test]
fn retry_after_is_rounded_up_and_at_least_one() {
    for (nanos, seconds) in [
        (0, "1"),
        (1, "1"),
        (999_999_999, "1"),
        (1_000_000_000, "1"),
        (1_000_000_001, "2"),
        (59_999_999_999, "60"),
        (60_000_000_000, "60"),
    ] {
        let denied = RateLimited::new(Decision::new(Verdict::Deny, 1, 0, Some(nanos), nanos));
        let response: Result<Response<()>, ()> = Standard.deny(Request::new(()), denied);
        assert_eq!(lines(&response.unwrap(), "retry-after"), [seconds]);
    }
}

/// Shows promise 57.
/// Shows promise 76.
#[tokio::test]
async fn an_outage_shows_no_details_of_the_store() {
    let outage = RateLimitLayer::new(Global, Gone).deny_on_store_error();
    let response = ask(&outage, Request::new(())).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.body(), "");
    assert!(!response.headers().contains_key("x-ratelimit-error"));
}
