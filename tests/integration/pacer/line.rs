//! The line: its order, its bounds, requests that are dropped, and what a server says that makes no sense.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};
use tokio_test::{assert_pending, assert_ready, task};
use tower::{
    BoxError, Layer, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn,
    util::BoxCloneService,
};
use tower_throttle::{
    RateLimited,
    client::{Host, Idempotent, PacerLayer},
};

use crate::pacer::support::request;

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
    let client = PacerLayer::new(Host).jitter(0).queue(2).layer(server);
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

/// A server that does not answer until it is told to.
fn held() -> (
    Says,
    mpsc::UnboundedReceiver<oneshot::Sender<Response<String>>>,
) {
    let (calls, asked) = mpsc::unbounded_channel();
    let service = service_fn(move |_: Request<String>| {
        let (answer, answered) = oneshot::channel();
        calls.send(answer).unwrap();
        async { answered.await.map_err(BoxError::from) }
    });
    (Says::new(service), asked)
}

fn denial(seconds: u32) -> Response<String> {
    let response = Response::builder().status(429);
    let response = response.header("retry-after", seconds);
    response.body(String::new()).unwrap()
}

fn woken<F>(line: &VecDeque<task::Spawn<F>>) -> usize {
    line.iter().filter(|waiting| waiting.is_woken()).count()
}

/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn a_first_request_that_is_dropped_holds_up_none() {
    let (server, mut asked) = held();
    let client = PacerLayer::new(Host).layer(server);
    let [mut first, mut second] = [(); 2].map(|()| task::spawn(client.clone().oneshot(get())));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    let _answer = asked.try_recv().expect("the first one");
    assert!(asked.try_recv().is_err(), "the second one waits for it");
    drop(first);
    assert!(second.is_woken());
    assert_pending!(second.poll());
    assert!(asked.try_recv().is_ok());
}

/// A waiting request keeps nothing from the service that it has not reached.
///
/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_readiness() {
    let (server, _) = says(429, &[("retry-after", "5")]);
    let one = ConcurrencyLimitLayer::new(1).layer(server);
    let client = PacerLayer::new(|request: &Request<String>| request.method().clone()).layer(one);
    client.clone().oneshot(get()).await.unwrap();
    let mut waiting = task::spawn(client.clone().oneshot(get()));
    assert_pending!(waiting.poll());
    let mut other = task::spawn(client.oneshot(request(Method::PUT)));
    assert!(assert_ready!(other.poll()).is_ok(), "of another key");
}

/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn servers_beyond_the_capacity_are_forgotten_the_least_recent_first() {
    let (server, _) = says(429, &[("retry-after", "20")]);
    let layer = PacerLayer::new(Host).max_wait(Duration::ZERO);
    let client = layer.layer(server);
    let is_known = async |host: &str| {
        let mut request = get();
        *request.uri_mut() = format!("http://{host}/").parse().unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        client.clone().oneshot(request).await.is_err()
    };
    let hosts: Vec<_> = (0..=1_024).map(|host| host.to_string()).collect();
    for host in &hosts {
        assert!(!is_known(host).await, "{host}");
    }
    for host in &hosts[1..] {
        assert!(is_known(host).await, "{host}");
    }
    assert!(!is_known("0").await);
}

/// A denial and a turn wake only the first of those that wait, and one that leaves only the one behind it.
///
/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn only_the_first_of_a_line_is_woken() {
    const WAITING: usize = 1_000;
    let (server, mut asked) = held();
    let client = PacerLayer::new(Host).queue(WAITING).layer(server);
    let mut first = task::spawn(client.clone().oneshot(get()));
    assert_pending!(first.poll());
    let mut line: VecDeque<_> = (0..WAITING)
        .map(|_| task::spawn(client.clone().oneshot(get())))
        .collect();
    for waiting in &mut line {
        assert_pending!(waiting.poll());
    }
    asked.try_recv().unwrap().send(denial(10)).unwrap();
    assert_eq!(assert_ready!(first.poll()).unwrap().status(), 429);
    assert_eq!(woken(&line), 1, "after a denial");
    assert_pending!(line[0].poll());

    drop(line.remove(WAITING / 2));
    assert_eq!(woken(&line), 1, "the one behind it");
    assert_pending!(line[WAITING / 2].poll());

    tokio::time::advance(Duration::from_secs(12)).await;
    assert_eq!(woken(&line), 1, "at its turn");
    assert_pending!(line[0].poll());
    assert_eq!(woken(&line), 1, "the next one");
}

/// Five clients that a server tells the same moment: by a denial, and by a window of which nothing is left.
///
/// Shows promise 310.
#[tokio::test(start_paused = true)]
async fn clients_that_are_told_one_moment_do_not_come_back_together() {
    const TOLD: [(u16, Lines); 2] = [
        (429, &[("retry-after", "5")]),
        (200, &[("ratelimit", r#""a";r=0;t=5"#)]),
    ];
    for (status, lines) in TOLD {
        for (jitter, is_apart) in [(Some(0), false), (Some(100), true), (None, true)] {
            let start = Instant::now();
            let mut calls = JoinSet::new();
            for _ in 0..5 {
                let layer = PacerLayer::new(Host);
                let layer = match jitter {
                    Some(percent) => layer.jitter(percent),
                    None => layer,
                };
                let client = Says::new(layer.layer(says(status, lines).0));
                calls.spawn(async move {
                    client.clone().oneshot(get()).await.unwrap();
                    client.oneshot(get()).await.unwrap();
                    start.elapsed().as_millis()
                });
            }
            let mut at = calls.join_all().await;
            let most = 5_001 + 50 * u128::from(jitter.unwrap_or(10));
            assert!(at.iter().all(|at| (5_000..=most).contains(at)), "{at:?}");
            // Of 500 ms or more, five take the same one by chance in one of 10^10 runs.
            at.dedup();
            assert_eq!(at.len() > 1, is_apart, "{jitter:?}: {at:?}");
        }
    }
}

/// With requests of several waits in one line: deadlines that are not in order.
///
/// Shows promise 312.
#[tokio::test(start_paused = true)]
async fn each_request_waits_for_at_most_its_own_time() {
    let (server, _) = says(429, &[("retry-after", "20")]);
    let layer = PacerLayer::new(Host).jitter(0);
    layer.layer(server.clone()).oneshot(get()).await.unwrap();
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for seconds in [30, 25, 21, 23] {
        let client = layer.clone().max_wait(Duration::from_secs(seconds));
        let client = Says::new(client.layer(server.clone()));
        calls.spawn(async move {
            let is_sent = client.oneshot(get()).await.is_ok();
            (seconds, is_sent, start.elapsed().as_secs())
        });
        tokio::task::yield_now().await;
    }
    // The first one is denied, and no other can wait for 20 s more.
    let mut ended = calls.join_all().await;
    ended.sort_unstable();
    assert_eq!(
        ended,
        [
            (21, false, 20),
            (23, false, 20),
            (25, false, 20),
            (30, true, 20)
        ]
    );
}

/// One key more than fit, each with a request in flight.
#[tokio::test(start_paused = true)]
async fn a_denial_counts_although_its_key_was_displaced_meanwhile() {
    let (server, mut asked) = held();
    let layer = PacerLayer::new(Host).max_wait(Duration::ZERO);
    let client = layer.layer(server);
    let ask = |host: &str| {
        let mut request = get();
        *request.uri_mut() = format!("http://{host}/").parse().unwrap();
        let client = client.clone();
        task::spawn(async move { client.oneshot(request).await })
    };
    let hosts: Vec<_> = (0..=1_024).map(|host| host.to_string()).collect();
    let mut calls: Vec<_> = hosts.iter().map(|host| ask(host)).collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    for call in &mut calls {
        // A new budget of polls.
        tokio::task::yield_now().await;
        asked.try_recv().unwrap().send(denial(10)).unwrap();
        assert_eq!(assert_ready!(call.poll()).unwrap().status(), 429);
    }
    for host in [&hosts[0], &hosts[1_024]] {
        let refused = assert_ready!(ask(host).poll()).unwrap_err();
        assert!(wait_of(&refused) >= Duration::from_secs(10));
    }
    assert!(asked.try_recv().is_err(), "nothing was sent");
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
    let client = ServiceBuilder::new().layer(PacerLayer::new(Host).jitter(0));
    let client = client.concurrency_limit(2).service(server);
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
