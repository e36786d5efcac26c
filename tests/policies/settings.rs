//! What every layer can do, a layer of a policy file can do as well.

use std::convert::Infallible;

use axum::{Extension, Router, body::Body, extract::Request, response::Response, routing::any};
use http::{StatusCode, header::RETRY_AFTER};
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    ClientIp, ConcurrencyLimitLayer, Decision, FixedWindow, Global, Quota, RateLimitLayer,
    RateLimited, Settle,
    key::Priority,
    policy::{PolicyHandle, PolicyKey, PolicyLayer},
};

use crate::support::{at, environment, file, from, limit, with};

const ONE: &str = "fixed_window 1/h";

fn layer(text: &str) -> (PolicyLayer, PolicyHandle) {
    let layer = PolicyLayer::new(file(text), environment()).unwrap();
    let handle = layer.handle();
    (layer, handle)
}

fn global(line: &str) -> (PolicyLayer, PolicyHandle) {
    layer(&limit("all", line, "\"global\"", ""))
}

/// The status of each of these requests.
async fn statuses<L, B>(layer: L, requests: Vec<Request>) -> Vec<u16>
where
    L: Layer<Router>,
    L::Service: Service<Request, Response = Response<B>, Error = Infallible> + Clone,
{
    // The status that the request asks for.
    let answer = async |request: Request| {
        let status = request.headers().get("answer");
        let status = status.map_or("200", |status| status.to_str().unwrap());
        status.parse::<StatusCode>().unwrap()
    };
    let service = layer.layer(Router::new().fallback(any(answer)));
    let mut statuses = Vec::new();
    for request in requests {
        let response = service.clone().oneshot(request).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

fn times(count: usize) -> Vec<Request> {
    (0..count).map(|_| from("192.0.2.1")).collect()
}

/// A layer of a policy file has the settings of every layer.
#[tokio::test]
async fn requests_are_skipped_blocked_and_weighed_as_in_every_layer() {
    let (skips, handle) = global(ONE);
    let skips = skips.skip(|request: &Request| request.uri().path() == "/free");
    let asked = ["/", "/", "/free"].map(|path| at("192.0.2.1", path));
    assert_eq!(statuses(skips, asked.into()).await, [200, 429, 200]);
    assert_eq!(handle.counts().skipped, 1);

    let blocks = global(ONE)
        .0
        .block(|request: &Request| request.uri().path() == "/admin");
    let asked = ["/admin", "/"].map(|path| at("192.0.2.1", path));
    assert_eq!(statuses(blocks, asked.into()).await, [403, 200]);

    let weighs = global("fixed_window 5/h").0.cost(|_: &Request| 2);
    assert_eq!(statuses(weighs, times(3)).await, [200, 200, 429]);

    let (ranks, _) = global("concurrency 1; queue=2");
    let ranks = ranks.priority(|request: &Request| match request.uri().path() {
        "/low" => Priority::LOW,
        _ => Priority::HIGH,
    });
    let service = ranks.layer(service_fn(async |_: Request| {
        Ok::<_, Infallible>(Response::new(Body::from("done")))
    }));
    let ask = |path| task::spawn(service.clone().oneshot(at("192.0.2.1", path)));
    let held = ask("/low").await.unwrap();
    let (mut low, mut high) = (ask("/low"), ask("/"));
    assert_pending!(low.poll());
    assert_pending!(high.poll());
    drop(held);
    assert!(high.is_woken() && !low.is_woken());
}

#[tokio::test]
async fn a_shadow_of_the_whole_file_lets_everything_pass_and_counts_it() {
    let deny = "[lists]\nbad = { cidrs = [\"203.0.113.0/24\"] }\n[[deny]]\nlist = \"bad\"\n";
    let (layer, handle) = layer(&(limit("all", ONE, "\"client_ip\"", "") + deny));
    let mut asked = times(2);
    asked.push(from("203.0.113.1"));
    assert_eq!(statuses(layer.shadow(), asked).await, [200, 200, 200]);
    assert_eq!(handle.counts_of("all").unwrap().shadow_denied, 1);
    assert_eq!(handle.denied_clients(), 1);
}

#[tokio::test]
async fn denials_are_answered_and_costs_settled_as_the_program_says() {
    let teapot = |_: &Request, denied: &RateLimited| {
        assert_eq!(denied.policy(), Some("all"));
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let answers = global(ONE).0.respond(teapot);
    assert_eq!(statuses(answers, times(2)).await, [200, 418]);

    let settles = global(ONE)
        .0
        .settle(|response: &Response| match response.status() {
            StatusCode::OK => Settle::Refund,
            _ => Settle::Keep,
        });
    let asked = ["200", "200", "500", "200"].map(|it| with(from("192.0.2.1"), "answer", it));
    assert_eq!(statuses(settles, asked.into()).await, [200, 200, 500, 429]);
}

#[tokio::test]
async fn the_strictest_decision_is_shared_whether_or_not_responses_state_it() {
    let text = limit(
        "day",
        "fixed_window 9/d",
        "\"global\"",
        "headers = \"draft-11\"",
    ) + &limit("hour", "fixed_window 2/h", "\"global\"", "");
    let left = async |Extension(decision): Extension<Decision>| decision.remaining().to_string();
    let app = Router::new()
        .route("/", any(left))
        .layer(layer(&text).0.share_decision());
    let response = app.oneshot(from("192.0.2.1")).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 100)
        .await
        .unwrap();
    assert_eq!(body, "1");
}

#[tokio::test]
async fn a_limit_of_the_program_and_those_of_a_file_count_together_or_not_at_all() {
    let text = limit(
        "login",
        "fixed_window 2/h",
        "\"global\"",
        "failure = 401\nheaders = \"draft-11\"",
    );
    let (policy, handle) = layer(&text);
    let clients = ClientIp::peer();
    let per_client = RateLimitLayer::new(clients.clone(), FixedWindow::new(Quota::per_hour(3)));
    let both = policy.and(per_client.name("client"));
    let second = both.handle().second();
    let client = clients.key([192, 0, 2, 1].into());
    let left = || second.peek_now(&client, 0).remaining();
    // A success counts for the client and not for the file.
    let asked = ["200", "401", "401", "200"].map(|it| with(from("192.0.2.1"), "answer", it));
    assert_eq!(
        statuses(both.clone(), asked.into()).await,
        [200, 401, 401, 429]
    );
    assert_eq!(left(), 0);
    let login = handle.limit("login").unwrap();
    assert_eq!(login.peek(&().into(), 0).await.unwrap().remaining(), 0);
    // What one denies, the other one does not count.
    second.reset(&client).await.unwrap();
    assert_eq!(statuses(both.clone(), times(2)).await, [429, 429]);
    assert_eq!(left(), 3);
    let service = both.layer(service_fn(async |_: Request| {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let denied = service.oneshot(from("192.0.2.1")).await.unwrap();
    let stated = denied.headers()["ratelimit"].to_str().unwrap();
    assert!(stated.starts_with("\"login\";r=0"), "{stated}");
    assert!(denied.headers().contains_key(RETRY_AFTER));

    // Planted bug: two layers, of which the outer one counts what the inner one denies.
    let outer = RateLimitLayer::new(clients, FixedWindow::new(Quota::per_hour(3)));
    let outside = outer.handle();
    let inner = layer(&text).0;
    let used = inner.handle().limit("login").unwrap();
    used.charge(&().into(), 2).await.unwrap();
    assert_eq!(statuses((outer, inner), times(2)).await, [429, 429]);
    assert_ne!(outside.peek_now(&client, 0).remaining(), 3);
}

#[tokio::test]
async fn a_body_holds_the_permits_of_all_limits_and_of_no_other() {
    let text = limit("total", "concurrency 3", "\"global\"", "")
        + &limit("client", "concurrency 2", "\"client_ip\"", "")
        + &limit(
            "login",
            "concurrency 1",
            "\"global\"",
            "match = { path = \"/login\" }",
        );
    let (policy, handle) = layer(&text);
    let both = policy.and(ConcurrencyLimitLayer::new(Global, 9).name("program"));
    let program = both.handle().second();
    let service = both.layer(service_fn(async |_: Request| {
        Ok::<_, Infallible>(Response::new(Body::from("done")))
    }));
    let [all, client] = [
        PolicyKey::from(()),
        ClientIp::peer().key([192, 0, 2, 1].into()).into(),
    ];
    let in_flight = || {
        let of = |name, key| handle.in_flight(name).unwrap().in_flight(key);
        let own = [of("total", &all), of("client", &client), of("login", &all)];
        (own, program.in_flight(&()))
    };
    let first = service.clone().oneshot(from("192.0.2.1")).await.unwrap();
    let second = service
        .clone()
        .oneshot(at("192.0.2.1", "/login"))
        .await
        .unwrap();
    assert_eq!(in_flight(), ([2, 2, 1], 2));
    let denied = service.clone().oneshot(from("192.0.2.1")).await.unwrap();
    assert_eq!(
        (denied.status().as_u16(), in_flight()),
        (429, ([2, 2, 1], 2))
    );
    drop(second);
    assert_eq!(in_flight(), ([1, 1, 0], 1));
    let body = axum::body::to_bytes(Body::new(first.into_body()), 100);
    assert_eq!(body.await.unwrap(), "done");
    assert_eq!(in_flight(), ([0, 0, 0], 0));

    // Planted bug: permits that are released with the head of the response.
    let (early, handle) = layer(&limit("busy", "concurrency 1", "\"global\"", ""));
    let early = early.settle(|_: &Response| Settle::Refund);
    let service = early.layer(service_fn(async |_: Request| {
        Ok::<_, Infallible>(Response::new(Body::from("done")))
    }));
    let held = service.oneshot(from("192.0.2.1")).await.unwrap();
    assert_ne!(handle.in_flight("busy").unwrap().in_flight(&all), 1);
    drop(held);
}
