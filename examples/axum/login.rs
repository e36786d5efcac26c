//! Protects a login form against password guessing: `cargo run --example login`
//!
//! Failures lock out an account from one address, and an address from all accounts. The owner of an
//! account can still log in from another address.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use axum::{
    Extension, Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{Response, StatusCode},
    middleware::{Next, from_fn},
    response::IntoResponse,
    routing::post,
};
use tower::ServiceExt;
use tower_throttle::{
    ClientIp, Lockout, ProblemJson, Quota, RateLimitLayer, Settle,
    key::{FromExtension, Key, Missing, PeerAddr},
};

/// The account of a login. The key of the limits is the account, whether it exists or not.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Account(String);

impl Key for Account {}

#[derive(Clone)]
struct Password(String);

/// The longest form that is read into memory.
const MAX_FORM: usize = 4_096;

/// Reads the form before the limits do, because a key is found without waiting for a body.
async fn read_form(request: Request, next: Next) -> axum::response::Response {
    let (mut parts, body) = request.into_parts();
    let Ok(form) = to_bytes(body, MAX_FORM).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Some((account, password)) = fields(&form) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    parts.extensions.insert(Account(account));
    parts.extensions.insert(Password(password));
    next.run(Request::from_parts(parts, Body::empty())).await
}

/// The fields of `account=..&password=..`. An application would use `axum::Form`.
fn fields(form: &[u8]) -> Option<(String, String)> {
    let (account, password) = std::str::from_utf8(form).ok()?.split_once('&')?;
    let account = account.strip_prefix("account=")?.to_lowercase();
    Some((account, password.strip_prefix("password=")?.to_owned()))
}

/// Takes as long for every password. An application would use Argon2.
fn slow_hash(password: &str) -> u64 {
    (0..10_000_u32).fold(0, |hash, _| {
        let mut hasher = DefaultHasher::new();
        (hash, password).hash(&mut hasher);
        hasher.finish()
    })
}

/// A wrong password and an unknown account get the same response after the same work.
async fn login(
    Extension(Account(account)): Extension<Account>,
    Extension(Password(password)): Extension<Password>,
) -> StatusCode {
    if account == "outage" {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let known = (account == "ann" || account == "mallory").then(|| slow_hash("right"));
    let given = slow_hash(&password);
    if known == Some(given) {
        StatusCode::OK
    } else {
        StatusCode::UNAUTHORIZED
    }
}

/// An attempt counts from its beginning, so that concurrent guesses cannot exceed the limit together.
/// One that is neither right nor wrong is given back.
fn settle(response: &axum::response::Response) -> Settle {
    match response.status() {
        StatusCode::OK => Settle::Forgive,
        StatusCode::UNAUTHORIZED => Settle::Keep,
        _ => Settle::Refund,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let account =
        || FromExtension::<Account>::new().if_missing(Missing::Reject(StatusCode::BAD_REQUEST));
    let minutes = |n: u64| Duration::from_secs(60 * n);
    // 5 failures in 15 minutes block an account for one address: for 1 minute, then 2, 4 and so on up
    // to an hour. A success clears them: the address knows the password.
    let per_pair = Lockout::new(Quota::per(5, minutes(15))).clear_on_success();
    // 8 failures per day block an address for all accounts. A success clears nothing, because an
    // attacker may have an account too.
    let per_address = Lockout::new(Quota::per_day(8))
        .block(minutes(15))
        .max_block(minutes(24 * 60));
    let limit = RateLimitLayer::new((account(), ClientIp::peer()), per_pair)
        .and(RateLimitLayer::new(ClientIp::peer(), per_address))
        .settle(settle)
        .respond(ProblemJson);
    let handle = limit.handle();
    // The layer that is added last is the first to see a request.
    let app = Router::new()
        .route("/login", post(login))
        .layer(limit)
        .layer(from_fn(read_form));

    let attempt = async |address: [u8; 4], account: &str, password: &str| {
        let form = format!("account={account}&password={password}");
        let mut request = Request::post("/login")
            .body(Body::from(form))
            .expect("valid");
        // No server here: set the address that a server would set per connection.
        let peer = PeerAddr(SocketAddr::from((address, 4711)));
        request.extensions_mut().insert(peer);
        let Ok(response) = app.clone().oneshot(request).await;
        response
    };
    let statuses = async |address, attempts: &[(&str, &str)]| {
        let mut statuses = Vec::new();
        for (account, password) in attempts {
            let response = attempt(address, account, password).await;
            statuses.push(response.status().as_u16());
        }
        statuses
    };

    let (home, attacker) = ([192, 0, 2, 1], [203, 0, 113, 9]);
    let guesses = statuses(attacker, &[("ann", "guess"); 7]).await;
    println!("an attacker guesses:              {guesses:?}");
    assert_eq!(guesses, [401, 401, 401, 401, 401, 429, 429]);

    let owner = statuses(home, &[("ann", "right"); 6]).await;
    println!("the owner logs in meanwhile:      {owner:?}");
    assert_eq!(owner, [200; 6]);

    let between = [("mallory", "right"), ("bob", "guess"), ("mallory", "right")];
    let own = statuses(attacker, &between).await;
    println!("an own login between two guesses: {own:?}");
    assert_eq!(own, [200, 401, 200]);

    let sprayed = statuses(attacker, &[("cid", "a"), ("dan", "a"), ("eve", "a")]).await;
    println!("one guess for each of many:       {sprayed:?}");
    assert_eq!(sprayed, [401, 401, 429]);

    let outages = statuses([192, 0, 2, 2], &[("outage", "any"); 20]).await;
    assert_eq!(outages, [503; 20], "an outage is no failure");

    // An account that exists and one that does not, each from an address of its own.
    for n in 0..7 {
        let known = bytes_of(attempt([198, 51, 100, 1], "ann", "guess").await).await;
        let unknown = bytes_of(attempt([198, 51, 100, 2], "unknown", "guess").await).await;
        assert_eq!(known, unknown, "attempt {n}");
    }
    println!("responses are equal for accounts that exist and that do not");

    let addresses = ClientIp::peer();
    let of_attacker = addresses.key(attacker.into());
    assert!(
        handle
            .second()
            .peek(&of_attacker, 1)
            .await
            .expect("in process")
            .is_denied()
    );
    let _ = handle.second().reset(&of_attacker).await;
    assert_eq!(statuses(attacker, &[("eve", "a")]).await, [401]);
    // What has failed elsewhere counts too.
    let _ = handle.second().charge(&of_attacker, 100).await;
    assert_eq!(statuses(attacker, &[("eve", "a")]).await, [429]);
}

/// Everything that a client can see.
async fn bytes_of(response: Response<Body>) -> (StatusCode, String, Bytes) {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, MAX_FORM).await.expect("a short body");
    (parts.status, format!("{:?}", parts.headers), body)
}
