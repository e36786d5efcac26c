//! Against guessing passwords: `cargo run --example login`
//!
//! Only failures count, by the address and by the name that is tried: an address that tries many
//! names is stopped, and so is a name that is tried from many addresses.

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

/// The cost is taken before and given back after a success, so that many attempts at once do not
/// get past the limit together.
fn only_failures(response: &Response) -> Settle {
    if response.status() == StatusCode::UNAUTHORIZED {
        Settle::Keep
    } else {
        Settle::Refund
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let by_address = RateLimitLayer::new(ClientIp::peer(), SlidingLog::new(Quota::per_minute(5)))
        .name("address")
        .settle(only_failures)
        .respond(ProblemJson);
    let name = HeaderKey::new("name").if_missing(Missing::Reject(StatusCode::BAD_REQUEST));
    let by_name = RateLimitLayer::new(name, SlidingLog::new(Quota::per_hour(3)))
        .name("account")
        .settle(only_failures)
        .respond(ProblemJson);
    let handle = by_name.handle();
    let app = Router::new()
        .route("/login", post(login))
        .layer(by_name)
        .layer(by_address);

    let attempt = async |address: [u8; 4], name: &str, password: &str| {
        let mut request = Request::post("/login")
            .header("name", name)
            .header("password", password)
            .body(Body::empty())
            .expect("a request");
        // A server does this for each connection.
        let peer = PeerAddr(SocketAddr::from((address, 4711)));
        request.extensions_mut().insert(peer);
        let Ok(response) = app.clone().oneshot(request).await;
        response.status().as_u16()
    };

    let (home, away) = ([192, 0, 2, 1], [203, 0, 113, 9]);
    let mut honest = Vec::new();
    for _ in 0..10 {
        honest.push(attempt(home, "ann", "right").await);
    }
    println!("ten right ones from home:         {honest:?}");
    assert_eq!(honest, [200; 10]);

    let mut guesses = Vec::new();
    for n in 0..5 {
        guesses.push(attempt(away, "ann", &format!("guess {n}")).await);
    }
    println!("five guesses at ann:              {guesses:?}");
    assert_eq!(guesses, [401, 401, 401, 429, 429]);

    let mut others = Vec::new();
    for name in ["bob", "cid", "dan", "eve"] {
        others.push(attempt(away, name, "guess").await);
    }
    println!("one guess at each of four others: {others:?}");
    assert_eq!(others[..1], [401]);
    assert_eq!(others[3], 429);
    println!("{:?}", handle.counts());
}
