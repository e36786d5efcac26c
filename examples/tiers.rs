//! Another limit for another plan: `cargo run --example tiers`
//!
//! The key is a pair: the plan, which chooses the limit, and the customer, who is counted.

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_throttle::{Headers, Quota, RateLimitLayer, Tiers, TokenBucket, key::Key};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Plan {
    Free,
    Pro,
    Unlimited,
}

impl Key for Plan {}

/// Authentication would have found out and left it in the extensions.
fn customer(req: &Request) -> Option<(Plan, String)> {
    let name = req.headers().get("customer")?.to_str().ok()?;
    let plan = match name {
        "house" => Plan::Unlimited,
        name if name.starts_with("pro-") => Plan::Pro,
        _ => Plan::Free,
    };
    // No key is no limit.
    (plan != Plan::Unlimited).then(|| (plan, name.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let limits = Tiers::new(TokenBucket::new(Quota::per_minute(2)))
        .tier(Plan::Pro, TokenBucket::new(Quota::per_minute(4)));
    let layer = RateLimitLayer::new(customer, limits)
        .name("plan")
        .headers(Headers::standard());
    let app = Router::new().route("/", get(async || ())).layer(layer);

    for (name, admitted) in [("ann", 2), ("pro-bob", 4), ("house", 6), ("cid", 2)] {
        let mut passed = 0;
        let mut told = String::new();
        for _ in 0..6 {
            let request = Request::get("/")
                .header("customer", name)
                .body(Body::empty());
            let Ok(response) = app.clone().oneshot(request.expect("a request")).await;
            passed += usize::from(response.status().is_success());
            if let Some(line) = response.headers().get("ratelimit") {
                told = format!("{line:?}");
            }
        }
        println!("{name:<8} {passed} of 6 admitted   {told}");
        assert_eq!(passed, admitted);
    }
}
