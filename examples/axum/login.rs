//! Protects a login route against password guessing: `cargo run --example login`
//!
//! Only failed attempts count, by the address of the client and by the account: an address that tries
//! many accounts is stopped, and so are many addresses that try one account.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::post,
};
use tower::ServiceExt;
use tower_throttle::{
    ClientIp, HeaderKey, ProblemJson, Quota, RateLimitLayer, Settle, SlidingLog,
    key::{Missing, PeerAddr},
};

async fn login(headers: HeaderMap) -> StatusCode {
    if headers
        .get("password")
        .is_some_and(|password| password == "right")
    {
        StatusCode::OK
    } else {
        StatusCode::UNAUTHORIZED
    }
}

/// The cost is taken before the attempt and refunded after a success, so that concurrent attempts
/// cannot exceed the limit together.
fn count_failures(response: &Response) -> Settle {
    if response.status() == StatusCode::UNAUTHORIZED {
        Settle::Keep
    } else {
        Settle::Refund
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let account = HeaderKey::new("account").if_missing(Missing::Reject(StatusCode::BAD_REQUEST));
    // 5 per minute per address, and 3 per hour per account: an attempt needs room in both.
    let limit = RateLimitLayer::new(ClientIp::peer(), SlidingLog::new(Quota::per_minute(5)))
        .and(account, SlidingLog::new(Quota::per_hour(3)))
        .settle(count_failures)
        .respond(ProblemJson);
    let handle = limit.handle();
    let app = Router::new().route("/login", post(login)).layer(limit);

    let attempt = async |address: [u8; 4], account: &str, password: &str| {
        let mut request = Request::post("/login")
            .header("account", account)
            .header("password", password)
            .body(Body::empty())
            .expect("valid headers");
        // No server here: set the address that a server would set per connection.
        let peer = PeerAddr(SocketAddr::from((address, 4711)));
        request.extensions_mut().insert(peer);
        let Ok(response) = app.clone().oneshot(request).await;
        response.status().as_u16()
    };

    let (home, attacker) = ([192, 0, 2, 1], [203, 0, 113, 9]);
    let mut successes = Vec::new();
    for _ in 0..10 {
        successes.push(attempt(home, "ann", "right").await);
    }
    println!("ann logs in ten times:               {successes:?}");
    assert_eq!(successes, [200; 10]);

    let mut guesses = Vec::new();
    for n in 0..5 {
        guesses.push(attempt(attacker, "ann", &format!("guess {n}")).await);
    }
    println!("attacker tries five passwords:       {guesses:?}");
    assert_eq!(guesses, [401, 401, 401, 429, 429]);

    let mut sprayed = Vec::new();
    for account in ["bob", "cid", "dan", "eve"] {
        sprayed.push(attempt(attacker, account, "guess").await);
    }
    println!("attacker tries four other accounts:  {sprayed:?}");
    assert_eq!(sprayed, [401, 401, 429, 429]);
    println!("{:?}", handle.counts());
}
