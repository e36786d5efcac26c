//! What a client may not do.

use std::time::Duration;

use http::Method;
use tokio::{task::JoinSet, time::Instant};
use tower::{Layer, ServiceExt};
use tower_throttle::{
    RateLimited,
    client::{Host, Idempotent, PacerLayer},
};

use crate::pacer::support::{Server, WINDOW, request};

/// What a client does wrong that sends 40 requests at once, and 200 more while it is blocked.
async fn faults(server: Server) -> Vec<&'static str> {
    let layer = PacerLayer::new(Host).queue(QUEUE);
    let layer = layer.retry(Idempotent).retry_budget(100, 50);
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
        let method = [Method::GET, Method::POST][usize::from(number % 8 == 5)].clone();
        send(&mut calls, method);
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
            let limited: &RateLimited = error.downcast_ref().expect("why it was not sent");
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
    if waited > QUEUE {
        faults.push("more waited than the line allows");
    }
    faults.dedup();
    faults
}

const QUEUE: usize = 50;

#[test]
fn what_is_not_set_is_as_documented_and_a_jitter_is_at_most_all_of_the_time() {
    let shown = format!("{:?}", PacerLayer::new(Host));
    let defaults = "queue: 100, max_wait: 30s, jitter: 10, retry_percent: 20, retry_reserve: 10 ";
    assert!(shown.contains(defaults), "{shown}");
    let jitter = |percent| std::panic::catch_unwind(|| PacerLayer::new(Host).jitter(percent));
    assert!(jitter(100).is_ok() && jitter(101).is_err());
}

/// Shows promises 310, 312, 313.
#[tokio::test(start_paused = true)]
async fn a_client_keeps_to_the_rules() {
    for limit in [1, 5, 20, 39] {
        assert_eq!(faults(Server::new(limit)).await, [""; 0], "{limit}");
    }
}

/// Shows promise 313.
#[tokio::test(start_paused = true)]
async fn retries_are_a_part_of_all_requests_and_a_reserve() {
    // Of 100 requests one after the other, each is denied.
    for (percent, reserve) in [(0, 0), (0, 7), (20, 10), (100, 3)] {
        let server = Server::new(0);
        let layer = PacerLayer::new(Host)
            .retry(Idempotent)
            .retry_budget(percent, reserve)
            .max_wait(Duration::from_secs(1_000_000));
        let client = layer.layer(server.clone());
        for _ in 0..100 {
            let response = client.clone().oneshot(request(Method::GET)).await;
            assert_eq!(response.unwrap().status(), 429);
            tokio::time::advance(WINDOW).await;
        }
        let (allowed, seen) = (percent + reserve, server.seen.lock().unwrap());
        let retries = u32::try_from(seen.requests).unwrap() - 100;
        assert!(retries <= allowed, "{retries} of {allowed}");
        // The reserve is used up.
        let least = if percent == 0 { reserve } else { allowed / 2 };
        assert!(retries >= least, "{retries} of {allowed}");
    }
}
