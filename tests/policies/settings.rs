//! What every layer can do, a layer of a policy file can do as well.

use std::convert::Infallible;

use axum::{Router, body::Body, extract::Request, response::Response, routing::any};
use http::{StatusCode, header::RETRY_AFTER};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{ClientIp, FixedWindow, Quota, RateLimitLayer, policy::PolicyLayer};

use crate::support::{environment, file, from, limit, with};

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

#[tokio::test]
async fn a_limit_of_the_program_and_those_of_a_file_count_together_or_not_at_all() {
    let text = limit(
        "login",
        "fixed_window 2/h",
        "\"global\"",
        "failure = 401\nheaders = \"draft-11\"",
    );
    let policy = PolicyLayer::new(file(&text), environment()).unwrap();
    let handle = policy.handle();
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
    let again = [from("192.0.2.1"), from("192.0.2.1")];
    assert_eq!(statuses(both.clone(), again.into()).await, [429, 429]);
    assert_eq!(left(), 3);
    let service = both.layer(service_fn(async |_: Request| {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let denied = service.oneshot(from("192.0.2.1")).await.unwrap();
    let stated = denied.headers()["ratelimit"].to_str().unwrap();
    assert!(stated.starts_with("\"login\";r=0"), "{stated}");
    assert!(denied.headers().contains_key(RETRY_AFTER));
}
