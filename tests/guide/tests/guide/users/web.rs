//! An axum API behind a proxy: limits per address and per customer's plan, a lockout of logins, a slow route with a
//! queue, and a restart that forgets nothing.

use std::{collections::HashMap, path::Path, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderValue, StatusCode},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tower_throttle::key::{FromExtension, Key, Missing};
use tower_throttle::store::{Plan, Quotas, StateFile};
use tower_throttle::{
    ClientIp, FixedWindow, Global, Headers, LeakyBucket, Local, Lockout, ProblemJson, Quota,
    RateLimitLayer, Settle, TokenBucket,
};

/// Whose API key a request has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Customer(u64);

impl Key for Customer {}

/// Whom a form of the login names.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Account(String);

impl Key for Account {}

async fn authenticate(mut request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key");
    let customer = match key.map(HeaderValue::as_bytes) {
        Some(b"of the first") => Customer(1),
        Some(b"of the second") => Customer(2),
        Some(b"of the third") => Customer(3),
        Some(b"of the fourth") => Customer(4),
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(customer);
    next.run(request).await
}

/// The form is `account:password`.
async fn read_form(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(form) = to_bytes(body, 1_000).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let form = String::from_utf8_lossy(&form);
    let Some((account, password)) = form.split_once(':') else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    parts.extensions.insert(Account(account.to_owned()));
    let request = Request::from_parts(parts, Body::from(password.to_owned()));
    next.run(request).await
}

async fn login(password: String) -> StatusCode {
    match &*password {
        "right" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    }
}

fn api(states: &Path) -> (Router, StateFile) {
    // 20 at once and one per second per address, which the proxies in 10.0.0.0/8 report.
    let clients = ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]);
    let bucket = TokenBucket::new(Quota::per_second(1).burst(20));
    let per_address = RateLimitLayer::new(clients.clone(), bucket)
        .name("address")
        .headers(Headers::Draft11)
        .respond(ProblemJson);

    // The tier of each customer has a count of its own. Who has none gets nothing.
    let tiers = HashMap::from([
        (Customer(1), Plan::Tier("free")),
        (Customer(2), Plan::Tier("paid")),
        (Customer(4), Plan::Tier("pro")),
    ]);
    let free = Local::new(FixedWindow::new(Quota::per_day(3)));
    let paid = Local::new(FixedWindow::new(Quota::per_day(5)));
    let pro = Local::new((
        TokenBucket::new(Quota::per_second(2)),
        FixedWindow::new(Quota::per_day(100)),
    ));
    let of_unknown = FixedWindow::new(Quota::per_day(1));
    let quotas = Quotas::new(of_unknown, move |customer: &Option<Customer>| {
        let tier = customer.and_then(|customer| tiers.get(&customer).copied());
        tier.unwrap_or(Plan::Blocked)
    })
    .tier("free", free.clone())
    .tier("paid", paid.clone())
    .tier("pro", pro.clone());
    let customer = FromExtension::<Customer>::new();
    let per_customer = RateLimitLayer::new(customer, quotas)
        .name("plan")
        .headers(Headers::Draft11)
        .respond(ProblemJson);

    // Five wrong passwords in a quarter of an hour lock an account.
    let account =
        FromExtension::<Account>::new().if_missing(Missing::Reject(StatusCode::BAD_REQUEST));
    let failures = Lockout::new(Quota::per(5, Duration::from_mins(15)));
    let logins = RateLimitLayer::new(account, failures)
        .name("login")
        .settle(|response: &Response| match response.status() {
            StatusCode::UNAUTHORIZED => Settle::Keep,
            _ => Settle::Refund,
        })
        .respond(ProblemJson);

    // One report per second. Two more wait.
    let reports = RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(1).burst(1)))
        .name("report")
        .queue(2)
        .max_wait(Duration::from_secs(10));

    let states = StateFile::new(states)
        .limit("free", free)
        .limit("paid", paid)
        .limit("pro", pro)
        .limit("login", logins.handle());

    let items = Router::new()
        .route("/items", get(async || "items"))
        .route_layer(per_customer)
        .route_layer(from_fn(authenticate));
    let logins = Router::new()
        .route("/login", post(login))
        .route_layer(logins)
        .route_layer(from_fn(read_form));
    let app = Router::new()
        .route("/report", get(async || "report").layer(reports))
        .merge(items)
        .merge(logins)
        .layer(per_address);
    (app, states)
}

// ---- What its users see.

use http::{Method, request::Builder};
use tokio::{task::JoinSet, time::Instant};
use tower::ServiceExt;
use tower_throttle::key::PeerAddr;

/// A request through the proxy.
fn of(client: &str) -> Builder {
    Request::builder()
        .header("x-forwarded-for", client)
        .extension(PeerAddr(([10, 0, 0, 1], 4711).into()))
}

async fn send(app: &Router, request: Builder, path: &str, body: &str) -> Response {
    let request = request.uri(path).body(Body::from(body.to_owned()));
    let Ok(response) = app.clone().oneshot(request.expect("a request")).await;
    response
}

async fn items(app: &Router, client: &str, key: &str) -> u16 {
    let request = of(client).header("x-api-key", key);
    send(app, request, "/items", "").await.status().as_u16()
}

async fn password(app: &Router, client: &str, form: &str) -> u16 {
    let request = of(client).method(Method::POST);
    send(app, request, "/login", form).await.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn each_client_customer_and_account_has_its_limit_also_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("users-web-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("limits");
    let (app, states) = api(&path);
    states.load().expect("no file at the first start");

    // A client has 20, whatever it writes to the left of what the proxy appends.
    for n in 0..20 {
        let forged = format!("6.6.6.{n}, 192.0.2.1");
        let report = send(&app, of(&forged), "/nothing", "").await;
        assert_eq!(report.status(), 404);
        let policy = r#""address";q=20;w=20"#;
        assert_eq!(report.headers()["ratelimit-policy"], policy);
    }
    let denied = send(&app, of("192.0.2.1"), "/nothing", "").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["retry-after"], "1");
    assert_eq!(denied.headers()["ratelimit"], r#""address";r=0;t=1"#);
    let problem = "application/problem+json";
    assert_eq!(denied.headers()["content-type"], problem);
    let body = to_bytes(denied.into_body(), 1_000).await.expect("a body");
    let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["violated-policies"], serde_json::json!(["address"]));
    assert_eq!(
        send(&app, of("192.0.2.2"), "/nothing", "").await.status(),
        404
    );

    // The first customer has 3 per day, the second 5, the third nothing, and the fourth 2 per second.
    let mut admitted = Vec::new();
    for key in [
        "of the first",
        "of the second",
        "of the third",
        "of the fourth",
    ] {
        let mut n = 0;
        while items(&app, &format!("192.0.3.{n}"), key).await == 200 {
            n += 1;
        }
        admitted.push(n);
    }
    assert_eq!(admitted, [3, 5, 0, 2]);
    assert_eq!(items(&app, "192.0.2.3", "invented").await, 401);

    // Right passwords cost nothing.
    for _ in 0..9 {
        assert_eq!(password(&app, "192.0.2.4", "ann:right").await, 200);
    }
    for _ in 0..5 {
        assert_eq!(password(&app, "192.0.2.5", "ann:wrong").await, 401);
    }
    assert_eq!(password(&app, "192.0.2.5", "ann:right").await, 429);
    assert_eq!(password(&app, "192.0.2.5", "bob:right").await, 200);

    // The report is slow.
    let begun = Instant::now();
    let mut reports = JoinSet::new();
    for _ in 0..4 {
        let app = app.clone();
        reports.spawn(async move {
            let response = send(&app, of("192.0.2.6"), "/report", "").await;
            (begun.elapsed().as_secs(), response.status().as_u16())
        });
    }
    let mut reports = reports.join_all().await;
    reports.sort_unstable();
    assert_eq!(reports, [(0, 200), (0, 429), (1, 200), (2, 200)]);

    // The next process.
    states.save().expect("saved");
    let (app, states) = api(&path);
    states.load().expect("loaded");
    assert_eq!(items(&app, "192.0.4.1", "of the first").await, 429);
    assert_eq!(items(&app, "192.0.4.1", "of the second").await, 429);
    assert_eq!(password(&app, "192.0.4.1", "ann:right").await, 429);
    std::fs::remove_dir_all(&folder).expect("removed");
}
