//! A shop in axum behind nginx: the client's own address, errors in JSON, headers, and a limit per route.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, http::StatusCode};
use serde_json::json;
use tower_throttle::{
    ClientIp, Headers, Quota, RateLimitLayer, RateLimited, SlidingLog, TokenBucket,
};

fn answer(_: &Request, denied: &RateLimited) -> Response {
    let body = json!({
        "error": denied.to_string(),
        "limit": denied.policy(),
        "wait": denied.retry_after_secs(),
    });
    (denied.status(), Json(body)).into_response()
}

async fn login() -> StatusCode {
    StatusCode::NO_CONTENT
}

fn app() -> Router {
    let clients = ClientIp::x_forwarded_for().trusting(["127.0.0.2/32"]);
    let bucket = TokenBucket::new(Quota::per_hour(10).burst(4));
    let search = RateLimitLayer::new(clients.clone(), bucket)
        .name("search")
        .headers(Headers::Draft11)
        .respond(answer);
    let log = SlidingLog::new(Quota::per_hour(2));
    let logins = RateLimitLayer::new(clients, log)
        .name("login")
        .headers(Headers::Draft11)
        .respond(answer);
    Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/login", post(login).layer(logins))
        .route("/health", get(async || "well"))
}

// ---- What its users see.

use std::net::SocketAddr;

use crate::nginx::Nginx;
use crate::support::{Client, serve};

/// An nginx with the address 127.0.0.2 in front of an app.
fn before(app: SocketAddr) -> Nginx {
    let http = |address: SocketAddr, _: &str| {
        format!(
            "server {{ listen {address};
                location / {{
                    proxy_pass http://{app};
                    proxy_bind 127.0.0.2;
                    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                }} }}"
        )
    };
    Nginx::start(http)
}

const ANN: Client = Client([127, 0, 0, 1]);
const BOB: Client = Client([127, 0, 0, 3]);

#[tokio::test]
async fn each_client_of_nginx_has_its_own_limit_whatever_it_writes() {
    let nginx = before(serve(app()).await);
    for client in [ANN, BOB] {
        for n in 1..=5 {
            let invented = format!("x-forwarded-for: 192.0.2.{n}\r\n");
            let response = client.send(nginx.address, "GET /search", &invented).await;
            assert_eq!(response.status == 200, n <= 4, "{n}: {response:?}");
        }
    }
}

/// A request that bypasses nginx is counted by its own address.
#[tokio::test]
async fn who_bypasses_nginx_cannot_choose_an_address_either() {
    let app = serve(app()).await;
    for n in 1..=5 {
        let invented = format!("x-forwarded-for: 192.0.2.{n}\r\n");
        let response = BOB.send(app, "GET /search", &invented).await;
        assert_eq!(response.status == 200, n <= 4, "{n}: {response:?}");
    }
}

#[tokio::test]
async fn a_denial_is_json_and_every_response_states_the_limit_of_its_route() {
    let nginx = before(serve(app()).await);
    let found = ANN.send(nginx.address, "GET /search", "").await;
    assert_eq!(found.body, "found");
    assert_eq!(found.header("ratelimit-policy"), r#""search";q=4;w=1440"#);
    assert!(found.header("ratelimit").starts_with(r#""search";r=3;t="#));

    let statuses = ANN.statuses(nginx.address, "POST /login", "", 2).await;
    assert_eq!(statuses, [204, 204]);
    let denied = ANN.send(nginx.address, "POST /login", "").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type"), "application/json");
    assert_eq!(denied.header("ratelimit-policy"), r#""login";q=2;w=3600"#);
    let wait: u64 = denied.header("retry-after").parse().expect("seconds");
    assert!((3_500..=3_600).contains(&wait), "{denied:?}");
    let end = format!(r#""limit":"login","wait":{wait}}}"#);
    assert!(denied.body.ends_with(&end), "{denied:?}");

    // A route has a limit of its own, or none.
    assert_eq!(ANN.send(nginx.address, "GET /search", "").await.status, 200);
    let health = ANN.statuses(nginx.address, "GET /health", "", 20).await;
    assert_eq!(health, [200; 20]);
}

/// The same program with the usual mistake, to show that the checks find it.
#[tokio::test]
async fn with_the_address_of_the_connection_all_clients_share_one_limit() {
    let bucket = TokenBucket::new(Quota::per_hour(10).burst(4));
    let limit = RateLimitLayer::new(ClientIp::peer(), bucket);
    let app = Router::new().route("/search", get(async || "found").layer(limit));
    let nginx = before(serve(app).await);
    assert_eq!(
        ANN.statuses(nginx.address, "GET /search", "", 4).await,
        [200; 4]
    );
    assert_eq!(BOB.send(nginx.address, "GET /search", "").await.status, 429);
}
