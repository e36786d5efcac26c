//! A quota per customer, from a database: `cargo run --example plans`
//!
//! The database is a map behind an async function. The quota of a customer is looked up once and then cached. Then one
//! customer buys a larger plan, while it is being limited.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, http::StatusCode, routing::get};
use tokio::time::sleep;
use tower::ServiceExt;
use tower_throttle::store::{Cached, Lookup, Plan, Quotas};
use tower_throttle::{FixedWindow, Headers, Quota, RateLimitLayer, StoreError};

/// In place of a connection to a database.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<HashMap<String, u64>>>);

impl Database {
    /// In place of `insert into plans ..`.
    fn buy(&self, customer: &str, requests_per_day: u64) {
        let mut plans = self.0.lock().expect("no panic");
        plans.insert(customer.to_owned(), requests_per_day);
    }

    /// In place of `select requests_per_day from plans where customer = $1`.
    async fn plan_of(self, customer: String) -> Result<Plan, StoreError> {
        sleep(Duration::from_millis(5)).await;
        println!("          the database is asked for {customer}");
        if customer == "outage" {
            return Err(StoreError::new("the database is down", true));
        }
        let plans = self.0.lock().expect("no panic");
        Ok(match plans.get(&customer) {
            None => Plan::Default,
            Some(0) => Plan::Blocked,
            Some(requests) => Plan::Quota(Quota::per_day(*requests)),
        })
    }
}

/// The name of the customer. A real app reads it from its authentication.
fn customer(request: &Request) -> Result<String, StatusCode> {
    let name = request.headers().get("customer");
    let name = name.and_then(|name| name.to_str().ok());
    name.map(str::to_owned).ok_or(StatusCode::UNAUTHORIZED)
}

/// How many of six requests pass, and the last header.
async fn six(app: &Router, name: &str) -> (usize, String) {
    let (mut admitted, mut header) = (0, String::new());
    for _ in 0..6 {
        let request = Request::get("/").header("customer", name);
        let request = request.body(Body::empty()).expect("valid headers");
        let Ok(response) = app.clone().oneshot(request).await;
        admitted += usize::from(response.status().is_success());
        let policy = response.headers().get("ratelimit-policy");
        let policy = policy.and_then(|policy| policy.to_str().ok());
        policy.unwrap_or_default().clone_into(&mut header);
    }
    println!("{name:<9} {admitted} of 6 admitted   ratelimit-policy: {header}");
    (admitted, header)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let database = Database::default();
    database.buy("ann", 3);
    database.buy("bob", 5);
    database.buy("eve", 0);
    let source = database.clone();
    // Two per day for customers without a plan, and while the database is down.
    // With `redis.limiter("api", ..)` in place of the window all servers share the counts.
    let plans = Cached::new(move |customer| source.clone().plan_of(customer));
    let quotas = Quotas::new(FixedWindow::new(Quota::per_day(2)), plans.clone());
    let layer = RateLimitLayer::new(customer, quotas)
        .name("plan")
        .headers(Headers::Draft11);
    let app = Router::new().route("/", get(async || ())).layer(layer);

    for (name, expected) in [
        ("ann", 3),
        ("bob", 5),
        ("cid", 2),
        ("eve", 0),
        ("outage", 2),
    ] {
        assert_eq!(six(&app, name).await.0, expected);
    }
    println!("the last error: {}", plans.last_error().unwrap_or_default());

    println!("ann buys 7 per day");
    database.buy("ann", 7);
    plans.refresh(&"ann".to_owned());
    // Decided under the old plan, while the new one is looked up. The three of before stay used.
    assert_eq!(six(&app, "ann").await.0, 0);
    while plans.plan(&"ann".to_owned()) != Some(Plan::Quota(Quota::per_day(7))) {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(six(&app, "ann").await.0, 4);
}
