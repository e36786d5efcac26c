//! What a client may not do. Each rule has a client that breaks it.

use std::time::Duration;

use http::{Method, Request, Response};
use tokio::{task::JoinSet, time::Instant};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};
use tower_throttle::{
    Global, RateLimited,
    client::{Host, Idempotent, PacerLayer},
};

use crate::pacer::support::{Server, WINDOW, request};

/// What a client does wrong that sends 40 requests at once, and 200 more while it is blocked.
async fn faults<L, S>(server: Server, layer: L, queue: usize) -> Vec<&'static str>
where
    L: Layer<Server, Service = S>,
    S: Service<Request<String>, Response = Response<String>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let client = layer.layer(server.clone());
    let send = |calls: &mut JoinSet<_>, method: Method| {
        let client = client.clone();
        calls.spawn(async move {
            let start = Instant::now();
            let result = client.oneshot(request(method)).await;
            (start.elapsed(), result)
        });
    };
    let mut calls = JoinSet::new();
    for number in 0..40 {
        send(
            &mut calls,
            if number % 8 == 5 {
                Method::POST
            } else {
                Method::GET
            },
        );
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..200 {
        send(&mut calls, Method::GET);
    }
    let mut waited = 0;
    let mut faults = Vec::new();
    while let Some(call) = calls.join_next().await {
        let (elapsed, result) = call.unwrap();
        waited += usize::from(elapsed > Duration::from_millis(100));
        if let Err(error) = result {
            let limited = error
                .downcast_ref::<RateLimited>()
                .expect("why it was not sent");
            if limited.retry_after().is_none_or(|wait| wait > 7 * WINDOW) {
                faults.push("an error does not say until when");
            }
        }
    }
    let seen = server.seen.lock().unwrap();
    assert!(seen.denied > 0, "the server was too much for the client");
    if seen.early > 0 {
        faults.push("sent before the time that the server said");
    }
    if seen.posts > 5 {
        faults.push("a POST was sent twice");
    }
    if waited > queue {
        faults.push("more waited than the line allows");
    }
    faults.dedup();
    faults
}

const QUEUE: usize = 50;

fn right<K>(keys: K) -> PacerLayer<K, Idempotent> {
    PacerLayer::new(keys)
        .queue(QUEUE)
        .retry(Idempotent)
        .retry_budget(100, 50)
}

/// Shows promises 310, 312, 313.
#[tokio::test(start_paused = true)]
async fn a_client_keeps_to_the_rules() {
    for limit in [1, 5, 20, 39] {
        assert_eq!(
            faults(Server::new(limit), right(Host), QUEUE).await,
            [""; 0],
            "{limit}"
        );
    }
}

/// Shows promises 310, 312, 313.
#[tokio::test(start_paused = true)]
async fn a_client_that_breaks_a_rule_is_found() {
    // Its server's `Retry-After` is cut by a second.
    let hurried = |mut response: Response<String>| {
        if let Some(wait) = response.headers().get("retry-after") {
            let seconds: u64 = wait.to_str().unwrap().parse().unwrap();
            response
                .headers_mut()
                .insert("retry-after", (seconds - 1).into());
        }
        response
    };
    let early = ServiceBuilder::new()
        .layer(right(Host))
        .map_response(hurried);
    let early = faults(Server::new(5), early, QUEUE).await;
    assert_eq!(early, ["sent before the time that the server said"]);

    let everything = PacerLayer::new(Global)
        .queue(QUEUE)
        .retry(|request: &Request<String>| Some(request.clone()));
    let everything = everything.retry_budget(100, 50);
    assert_eq!(
        faults(Server::new(5), everything, QUEUE).await,
        ["a POST was sent twice"]
    );

    let endless = right(Host).queue(usize::MAX);
    assert_eq!(
        faults(Server::new(5), endless, QUEUE).await,
        ["more waited than the line allows"]
    );
}

/// Shows promise 313.
#[tokio::test(start_paused = true)]
async fn retries_are_a_part_of_all_requests_and_a_reserve() {
    // Of 100 requests one after the other, each is denied.
    for (percent, reserve) in [(0, 0), (0, 7), (20, 10), (100, 3)] {
        let server = Server::new(0);
        let layer = PacerLayer::new(Host)
            .retry(Idempotent)
            .retry_budget(percent, reserve);
        let client = layer.layer(server.clone());
        for _ in 0..100 {
            let response = client.clone().oneshot(request(Method::GET)).await;
            assert!(response.is_err() || response.is_ok_and(|response| response.status() == 429));
            tokio::time::advance(WINDOW).await;
        }
        let (allowed, seen) = (percent + reserve, server.seen.lock().unwrap());
        let retries = u32::try_from(seen.requests).unwrap() - 100;
        assert!(retries <= allowed, "{retries} of {allowed}");
        assert!(2 * retries >= allowed, "{retries} of {allowed}");
    }
}
