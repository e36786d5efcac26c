//! What a limit counts of a request that a limit inside it denies.

use axum::{Router, body::Body, extract::Request, response::Response, routing::any};
use http::StatusCode;
use tower_throttle::{
    FixedWindow, Global, HeaderKey, Lockout, Quota, RateLimitLayer, RateLimited, Settle,
    concurrency::ConcurrencyLimitLayer, key::Missing, respond::Grpc,
};

use crate::client::support::{ask, policy};

/// The login, with a limit inside that denies every request with the header `denied`, in this many ways.
fn logins() -> Vec<(&'static str, Router)> {
    let denied = |request: &Request| request.headers().contains_key("denied");
    let limit = || {
        RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(100)))
            .cost(move |request: &Request| if denied(request) { 1_000_u64 } else { 1 })
    };
    let fine = |_: &Request, _: &RateLimited| Response::new(Body::empty());
    let keys = HeaderKey::new("undenied").if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let keyed = RateLimitLayer::new(keys, FixedWindow::new(Quota::per_day(100)))
        .skip(move |r: &Request| !denied(r));
    let file = "[[limit]]\nname = \"in\"\nlimit = \"fixed_window 100/d\"\nkey = \"header:undenied\"\nmissing = 401\nmatch = { methods = \"PUT\" }";
    let flight = ConcurrencyLimitLayer::new(Global, 1)
        .cost(move |r: &Request| if denied(r) { 2_u64 } else { 1 });
    let app = Router::new().route(
        "/login",
        any(async |request: Request| {
            if request.headers().contains_key("right") {
                StatusCode::OK
            } else {
                StatusCode::UNAUTHORIZED
            }
        }),
    );
    vec![
        ("429", app.clone().layer(limit())),
        ("200 of gRPC", app.clone().layer(limit().respond(Grpc))),
        ("200", app.clone().layer(limit().respond(fine))),
        ("403", app.clone().layer(limit().block(denied))),
        ("401 without a key", app.clone().layer(keyed)),
        ("in flight", app.clone().layer(flight)),
        ("a file", app.layer(policy(file))),
    ]
}

fn attempt(headers: &[&'static str]) -> Request {
    let mut request = Request::post("/login").body(Body::empty()).unwrap();
    for name in headers {
        request.headers_mut().insert(*name, "x".parse().unwrap());
    }
    if headers.contains(&"denied") {
        *request.method_mut() = http::Method::PUT;
    }
    request
}

fn lockout() -> Lockout {
    Lockout::new(Quota::per_day(3)).clear_on_success()
}

fn by_status(response: &Response) -> Settle {
    match response.status() {
        status if status.is_success() => Settle::Forgive,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
            Settle::Keep
        }
        _ => Settle::Refund,
    }
}

/// Whether exactly the third wrong password blocks: denials inside have cleared and counted nothing.
async fn is_exact(app: &Router) -> bool {
    let mut statuses = Vec::new();
    for kind in [
        "wrong", "wrong", "denied", "denied", "denied", "wrong", "wrong",
    ] {
        let response = ask(app, attempt(&[kind])).await;
        if kind == "wrong" {
            statuses.push(response.status().as_u16());
        }
    }
    statuses == [401, 401, 401, 429]
}

/// The limits outside, each around `login`.
fn lockouts(login: &Router) -> Vec<(&'static str, Router)> {
    let limit = || RateLimitLayer::new(Global, lockout());
    let file = "[[limit]]\nname = \"out\"\nlimit = \"lockout 3/d; on_success=clear\"\nkey = \"global\"\n\
                match = { methods = [\"POST\", \"PUT\"] }\nfailure = [401, 403, 429]";
    vec![
        ("settle", login.clone().layer(limit().settle(by_status))),
        ("a file", login.clone().layer(policy(file))),
    ]
}

/// Shows promise 303.
#[tokio::test]
async fn a_denial_inside_is_neither_a_success_nor_a_failure() {
    for (inside, login) in logins() {
        for (outside, app) in lockouts(&login) {
            assert!(is_exact(&app).await, "{inside} inside of {outside}");
            // The service's own success clears, and its failures block.
            let response = ask(&app, attempt(&["right"])).await;
            assert_eq!(response.status(), 429, "{outside}");
        }
    }
}

/// A closure for results is asked, and can count denials by name. It cannot make one a success.
///
/// Shows promise 303.
#[tokio::test]
async fn a_closure_of_the_result_counts_denials_by_name_and_never_as_a_success() {
    let by_name = |result: Result<&Response, &std::convert::Infallible>| {
        let response = result.unwrap();
        match response.extensions().get::<RateLimited>() {
            Some(denied) if denied.rejection().is_some() => Settle::Keep,
            _ => by_status(response),
        }
    };
    for (inside, login) in logins() {
        let app = login.layer(RateLimitLayer::new(Global, lockout()).settle(by_name));
        let mut statuses = Vec::new();
        for kind in ["wrong", "wrong", "denied", "wrong", "wrong"] {
            statuses.push(ask(&app, attempt(&[kind])).await.status().as_u16());
        }
        let blocked = if inside.contains("200") { 401 } else { 429 };
        assert_eq!(statuses[3..], [blocked, 429], "{inside}: {statuses:?}");
    }
}

/// In one file, a request without the key of one limit is a failure for no other one.
///
/// Shows promise 303.
#[tokio::test]
async fn a_rejection_for_a_missing_key_is_counted_by_no_other_limit_of_the_file() {
    let (_, login) = logins().pop().unwrap();
    let app = login.layer(policy(
        "[[limit]]\nname = \"guesses\"\nlimit = \"lockout 3/d\"\nkey = \"global\"\n\
         [[limit]]\nname = \"keyed\"\nlimit = \"fixed_window 100/d\"\nkey = \"bearer\"\nmissing = 401\n\
         match = { methods = \"PUT\" }",
    ));
    assert!(is_exact(&app).await);
}
