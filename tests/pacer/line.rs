//! The line: its order, its bounds, requests that are dropped, and what a server says that makes no sense.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, task};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneService};
use tower_throttle::{
    Global, RateLimited,
    client::{Host, Idempotent, PacerLayer},
};

use crate::support::{Server, WINDOW, request};

type Lines = &'static [(&'static str, &'static str)];

type Asked = Arc<Mutex<Vec<Instant>>>;
type Says = BoxCloneService<Request<String>, Response<String>, BoxError>;

/// A server that responds with this status and these headers, and notes when it was asked.
fn says(status: u16, lines: Lines) -> (Says, Asked) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let service = service_fn(move |_: Request<String>| {
        seen.lock().unwrap().push(Instant::now());
        let mut response = Response::builder().status(status);
        for (name, value) in lines {
            response = response.header(*name, *value);
        }
        std::future::ready(response.body(String::new()).map_err(BoxError::from))
    });
    (Says::new(service), asked)
}

fn get() -> Request<String> {
    request(Method::GET)
}

/// The wait that an error states.
fn wait_of(error: &BoxError) -> Duration {
    let limited = error
        .downcast_ref::<RateLimited>()
        .expect("a request that was not sent");
    limited.retry_after().expect("until when")
}

/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn requests_go_in_the_order_of_their_calls_and_spaced() {
    let (server, asked) = says(200, &[("ratelimit", r#""a";r=5;t=10"#)]);
    let client = PacerLayer::new(Host).layer(server);
    let start = Instant::now();
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(task::spawn(client.clone().oneshot(get())));
        let _ = calls.last_mut().unwrap().poll();
    }
    let mut done = Vec::new();
    for _ in 0..1_000 {
        for (number, call) in calls.iter_mut().enumerate() {
            if !done.contains(&number) && call.is_woken() && call.poll().is_ready() {
                done.push(number);
            }
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(done, [1, 2, 3, 4]);
    let at: Vec<_> = asked
        .lock()
        .unwrap()
        .iter()
        .map(|at| at.duration_since(start).as_secs())
        .collect();
    assert_eq!(at, [0, 2, 4, 6, 8]);
}

/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_gives_its_place_away() {
    let (server, asked) = says(429, &[("retry-after", "5")]);
    let client = PacerLayer::new(Host).queue(2).layer(server);
    client.clone().oneshot(get()).await.unwrap();
    let mut first = task::spawn(client.clone().oneshot(get()));
    let mut second = task::spawn(client.clone().oneshot(get()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    let full = client.clone().oneshot(get()).await.unwrap_err();
    assert_eq!(wait_of(&full), Duration::from_secs(5));
    drop(first);
    assert!(second.is_woken(), "it is the first now");
    let mut third = task::spawn(client.clone().oneshot(get()));
    assert_pending!(third.poll());
    assert_pending!(second.poll());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(assert_ready!(second.poll()).unwrap().status(), 429);
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn a_first_request_that_is_dropped_holds_up_none() {
    let asked = Arc::new(Mutex::new(0));
    let seen = asked.clone();
    let never = service_fn(move |_: Request<String>| {
        *seen.lock().unwrap() += 1;
        std::future::pending::<Result<Response<String>, BoxError>>()
    });
    let client = PacerLayer::new(Host).layer(never);
    let mut first = task::spawn(client.clone().oneshot(get()));
    let mut second = task::spawn(client.clone().oneshot(get()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    drop(first);
    assert!(second.is_woken());
    assert_pending!(second.poll());
    assert_eq!(*asked.lock().unwrap(), 2);
}

/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_holds_up_others_for_at_most_its_wait() {
    let (server, _) = says(200, &[("ratelimit", r#""a";r=1;t=20"#)]);
    let client = PacerLayer::new(Host)
        .max_wait(Duration::from_secs(25))
        .layer(server);
    client.clone().oneshot(get()).await.unwrap();
    let mut asleep = task::spawn(client.clone().oneshot(get()));
    assert_pending!(asleep.poll());
    tokio::time::advance(Duration::from_secs(21)).await;
    let start = Instant::now();
    client.clone().oneshot(get()).await.unwrap();
    assert!(
        start.elapsed() <= Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

/// Three requests have their turns at once, and one of them waits for the service, when the server denies another.
///
/// Shows promise 310.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_service_is_not_sent_after_a_denial() {
    const ROUND_TRIP: Duration = Duration::from_millis(10);
    let asked = Asked::default();
    let seen = asked.clone();
    let server = service_fn(move |_: Request<String>| {
        seen.lock().unwrap().push(Instant::now());
        let is_denied = seen.lock().unwrap().len() == 2;
        async move {
            tokio::time::sleep(ROUND_TRIP).await;
            let response = Response::builder().status(if is_denied { 429 } else { 200 });
            let response = response.header("retry-after", "10").body(String::new());
            response.map_err(BoxError::from)
        }
    });
    let client = ServiceBuilder::new()
        .layer(PacerLayer::new(Host))
        .concurrency_limit(2)
        .service(server);
    let calls: JoinSet<_> = (0..4).map(|_| client.clone().oneshot(get())).collect();
    assert_eq!(calls.join_all().await.len(), 4);
    let asked = asked.lock().unwrap();
    assert_eq!([asked[1] - asked[0], asked[2] - asked[0]], [ROUND_TRIP; 2]);
    let wait = Duration::from_secs(10);
    assert_eq!(asked[3] - asked[2], ROUND_TRIP + wait);
}

/// A request that is denied waits again only if there is room.
///
/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn a_retry_that_finds_a_full_line_returns_its_denial() {
    let (server, asked) = says(429, &[("retry-after", "5")]);
    let late = service_fn(move |request: Request<String>| {
        let server = server.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            server.oneshot(request).await
        }
    });
    // After a second without a response to the first request others are sent too.
    let client = PacerLayer::new(Host).queue(1).retry(Idempotent).layer(late);
    let mut calls = JoinSet::new();
    calls.spawn(client.clone().oneshot(request(Method::POST)));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    calls.spawn(client.clone().oneshot(get()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The first one was denied. This one waits.
    let mut waits = task::spawn(client.clone().oneshot(get()));
    assert_pending!(waits.poll());
    for _ in 0..2 {
        let response = calls.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(response.status(), 429);
    }
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// Waiting requests keep nothing from the service that they have not reached.
///
/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_readiness() {
    let (server, _) = says(429, &[("retry-after", "5")]);
    let one = tower::limit::ConcurrencyLimitLayer::new(1).layer(server);
    let client = PacerLayer::new(|request: &Request<String>| request.method().clone()).layer(one);
    client.clone().oneshot(get()).await.unwrap();
    let mut waiting = task::spawn(client.clone().oneshot(get()));
    assert_pending!(waiting.poll());
    let other = client.oneshot(request(Method::PUT)).await.unwrap();
    assert_eq!(other.status(), 429, "of another key");
}

/// Shows promise 314.
#[tokio::test(start_paused = true)]
async fn nonsense_loses_nothing() {
    const FINE: &[Lines] = &[
        &[("retry-after", "31536000")],
        &[("ratelimit", ";;;\"=r=;t=")],
        &[("ratelimit", r#""a";r=-3;t=-1"#)],
        &[
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "never"),
        ],
        &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "12")],
        &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "0")],
        &[("grpc-status", "x"), ("grpc-status-details-bin", "%%%")],
        &[("date", "yesterday"), ("retry-after", "tomorrow")],
    ];
    for lines in FINE {
        let (server, asked) = says(200, lines);
        let client = PacerLayer::new(Host).layer(server);
        for _ in 0..5 {
            assert_eq!(
                client.clone().oneshot(get()).await.unwrap().status(),
                200,
                "{lines:?}"
            );
        }
        assert_eq!(asked.lock().unwrap().len(), 5);
    }
}

/// Shows promise 314.
#[tokio::test(start_paused = true)]
async fn a_retry_after_of_a_year_is_believed_for_a_bounded_time() {
    const YEAR: Lines = &[("retry-after", "31536000")];
    let (server, asked) = says(429, YEAR);
    let believe = Duration::from_secs(600);
    let client = PacerLayer::new(Host)
        .believe(believe)
        .retry(Idempotent)
        .layer(server);
    let start = Instant::now();
    let response = client.clone().oneshot(get()).await.unwrap();
    assert_eq!(response.status(), 429, "the response is returned as it is");
    assert_eq!(response.headers()["retry-after"], "31536000");
    let error = client.clone().oneshot(get()).await.unwrap_err();
    assert_eq!(wait_of(&error), believe);
    assert_eq!(error.to_string(), "rate limit exceeded, retry in 600 s");
    assert_eq!(start.elapsed(), Duration::ZERO, "at once");
    tokio::time::advance(believe).await;
    client.clone().oneshot(get()).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// Many hosts take no more memory than the capacity, and what is known of those in use is kept.
///
/// Shows promise 314.
#[tokio::test(start_paused = true)]
async fn hosts_beyond_the_capacity_are_forgotten_the_least_recent_first() {
    let (server, asked) = says(429, &[("retry-after", "20")]);
    let layer = PacerLayer::new(Host).capacity(3).max_wait(Duration::ZERO);
    let client = layer.layer(server);
    let ask = async |host: &str| {
        let mut request = get();
        *request.uri_mut() = format!("http://{host}/").parse().unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        client.clone().oneshot(request).await.is_ok()
    };
    for host in ["a", "b", "c"] {
        assert!(ask(host).await);
        assert!(!ask(host).await, "it is known");
    }
    assert!(ask("d").await);
    assert!(!ask("b").await && !ask("c").await && !ask("d").await);
    assert!(ask("a").await, "it was the oldest");
    for number in 0..10_000 {
        assert!(ask(&format!("h{number}")).await);
    }
    let debug = format!("{layer:?}");
    assert_eq!(debug.matches("Entry {").count(), 3);
    assert_eq!(asked.lock().unwrap().len(), 10_005);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_sent_says_why() {
    let server = Server::new(5);
    let client = PacerLayer::new(Host).layer(server.clone());
    let error = client
        .oneshot(Request::new(String::new()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no host"), "{error}");
    assert_eq!(server.seen.lock().unwrap().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn keys_are_paced_apart_and_clones_together() {
    let server = Server::new(1);
    let layer = PacerLayer::new(Global);
    let (one, other) = (
        layer.layer(server.clone()),
        layer.clone().layer(server.clone()),
    );
    for client in [one.clone(), one.clone()] {
        client.oneshot(get()).await.unwrap();
    }
    let start = Instant::now();
    other.oneshot(get()).await.unwrap();
    assert!(start.elapsed() >= WINDOW);
    let apart = PacerLayer::new(Global).layer(server);
    let response = apart.oneshot(get()).await.unwrap();
    assert_eq!(response.status(), 429, "it knows of no denial");
}
