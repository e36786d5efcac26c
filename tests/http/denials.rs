//! The response to a denied request.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use tower_throttle::{
    Decision, Global, ProblemJson, Quota, RateLimitLayer, RateLimited, Verdict,
    layer::OnStoreError,
    respond::{Auto, Grpc, HeadersOnly, Respond},
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

/// Shows promise 110.
#[tokio::test]
async fn every_denial_has_the_reason_in_its_extensions() {
    let closure = |_: &Request<()>, _: &RateLimited| Response::new(String::new());
    let check = |response: Response<String>| {
        let limited = response.extensions().get::<RateLimited>().unwrap();
        assert_eq!(limited.policy(), Some("api"));
        assert_eq!(limited.retry_after().unwrap().as_millis(), 1_500);
    };
    check(ask(&denying(), Request::new(())).await);
    check(ask(&denying(), grpc()).await);
    check(ask(&denying().respond(HeadersOnly), Request::new(())).await);
    check(ask(&denying().respond(ProblemJson), Request::new(())).await);
    check(ask(&denying().respond(Grpc), Request::new(())).await);
    check(ask(&denying().respond(closure), Request::new(())).await);
}

/// Shows promise 75.
#[tokio::test]
async fn a_problem_has_its_registered_type() {
    let response = ask(&denying().respond(ProblemJson), Request::new(())).await;
    assert_eq!(
        lines(&response, "content-type"),
        ["application/problem+json"]
    );
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

/// Shows promise 74.
#[tokio::test]
async fn one_layer_responds_to_http_and_grpc() {
    let layer = denying().respond(Auto::with(ProblemJson));
    let http = ask(&layer, Request::new(())).await;
    assert_eq!(http.status(), 429);
    assert_eq!(lines(&http, "content-type"), ["application/problem+json"]);
    let rpc = ask(&layer, grpc()).await;
    assert_eq!(rpc.status(), 200);
    assert_eq!(lines(&rpc, "content-type"), ["application/grpc"]);
    assert_eq!(lines(&rpc, "grpc-status"), ["8"]);
    assert_eq!(lines(&rpc, "grpc-retry-pushback-ms"), ["1500"]);
    assert_eq!(rpc.body(), "");
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
    assert_eq!(
        lines(&response, "retry-after"),
        ["2"],
        "added if the closure did not set it"
    );

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

#[tokio::test]
async fn a_rejection_becomes_an_http_or_grpc_status() {
    let keys = |_: &Request<()>| -> Result<u8, StatusCode> { Err(StatusCode::UNAUTHORIZED) };
    let admitted = Decision::new(Verdict::Admit, 10, 9, None, 0);
    let layer = RateLimitLayer::new(keys, Says(admitted, vec![Quota::per_minute(10)]));
    assert_eq!(ask(&layer, Request::new(())).await.status(), 401);
    let rpc = ask(&layer, grpc()).await;
    assert_eq!(
        (rpc.status().as_u16(), lines(&rpc, "grpc-status")),
        (200, vec!["16"])
    );
    assert_eq!(lines(&rpc, "grpc-message"), ["Unauthorized"]);
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

/// Whether a request is admitted after the seconds that `retry_after` returns, which are less than
/// one second too many.
fn is_truthful(retry_after: impl Fn(Duration) -> u64) -> bool {
    let spans = [
        1,
        999_999_999,
        1_000_000_000,
        1_000_000_001,
        59_999_999_999,
        60_000_000_000,
    ];
    spans.into_iter().map(Duration::from_nanos).all(|span| {
        let stated = Duration::from_secs(retry_after(span));
        span <= stated && stated < span + Duration::from_secs(1)
    })
}

/// Shows promise 73.
#[test]
fn a_request_after_retry_after_is_admitted_and_rounding_down_is_detected() {
    let ours = |span: Duration| {
        let nanos = u64::try_from(span.as_nanos()).unwrap();
        let denied = RateLimited::new(Decision::new(Verdict::Deny, 1, 0, Some(nanos), nanos));
        let response: Result<Response<()>, ()> = HeadersOnly.deny(Request::new(()), denied);
        lines(&response.unwrap(), "retry-after")[0].parse().unwrap()
    };
    assert!(is_truthful(ours));
    assert!(!is_truthful(|span| span.as_secs()));
    assert!(!is_truthful(|span| span.as_secs().max(1)));
    assert!(!is_truthful(|span| span.as_secs() + 1));
}

/// Shows promise 57.
/// Shows promise 76.
#[tokio::test]
async fn an_outage_is_said_in_the_body_without_details_of_the_store() {
    let outage = RateLimitLayer::new(Global, Gone).on_store_error(OnStoreError::Deny);
    let response = ask(&outage, Request::new(())).await;
    assert_eq!(response.status(), 503);
    assert_eq!(
        lines(&response, "content-type"),
        ["text/plain; charset=utf-8"]
    );
    assert_eq!(
        response.body(),
        "the rate limit cannot be checked at present\n"
    );
}
