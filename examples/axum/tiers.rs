//! A different limit per subscription plan: `cargo run --example tiers`
//!
//! The key is a pair. The plan says which quota a customer has, and each customer is counted separately.

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_throttle::{
    Headers, Quota, RateLimitLayer, TokenBucket,
    key::{Extracted, Key},
    store::{self, Quotas},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Plan {
    Free,
    Pro,
}

impl Key for Plan {}

/// The plan and the name of the customer. A real app reads them from its authentication.
fn customer(request: &Request) -> Extracted<(Plan, String)> {
    // Requests without a name share one limit: a client could leave it out.
    let name = request.headers().get("customer");
    let name = name.and_then(|name| name.to_str().ok()).unwrap_or_default();
    let plan = match name {
        "internal" => return Extracted::Skip, // not limited
        name if name.starts_with("pro-") => Plan::Pro,
        _ => Plan::Free,
    };
    Extracted::Key((plan, name.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let free = TokenBucket::new(Quota::per_minute(2));
    let limits = Quotas::new(free, |(plan, _): &(Plan, String)| match plan {
        Plan::Free => store::Plan::Default,
        Plan::Pro => store::Plan::Quota(Quota::per_minute(4)),
    });
    let layer = RateLimitLayer::new(customer, limits)
        .name("plan")
        .headers(Headers::Draft11);
    let app = Router::new().route("/", get(async || ())).layer(layer);

    for (name, expected) in [("ann", 2), ("pro-bob", 4), ("internal", 6), ("cid", 2)] {
        let mut admitted = 0;
        let mut header = String::new();
        for _ in 0..6 {
            let request = Request::get("/")
                .header("customer", name)
                .body(Body::empty());
            let Ok(response) = app.clone().oneshot(request.expect("valid headers")).await;
            admitted += usize::from(response.status().is_success());
            if let Some(value) = response.headers().get("ratelimit") {
                header = format!("ratelimit: {}", value.to_str().unwrap_or_default());
            }
        }
        println!("{name:<9} {admitted} of 6 admitted   {header}");
        assert_eq!(admitted, expected);
    }
}
