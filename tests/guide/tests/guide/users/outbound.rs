//! A client that keeps to the limits of others: it waits as they say, paces itself, and bounds what is in flight.

use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder};
use tower_throttle::client::{Host, Idempotent, PacerLayer};
use tower_throttle::concurrency::{ConcurrencyLimitLayer, Gradient2};
use tower_throttle::{AsError, LeakyBucket, Quota, RateLimitLayer};

type Client = BoxCloneSyncService<Request<String>, Response<Body>, BoxError>;

/// A client of `transport`, and a function that says how many requests may be in flight now.
fn client<S>(transport: S) -> (Client, impl Fn() -> u64)
where
    S: Service<Request<String>, Response = Response<String>, Error = BoxError>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    // At most 50 per second per host, evenly spaced.
    let pace = LeakyBucket::new(Quota::per_second(50).burst(1));
    let host = |request: &Request<String>| request.uri().authority().cloned();
    let pace = RateLimitLayer::new(host, pace)
        .queue(1_000)
        .max_wait(Duration::from_secs(30))
        .respond(AsError);
    let busy = ConcurrencyLimitLayer::adaptive(Gradient2::new().between(1, 100).start_at(4))
        .queue(1_000)
        .max_wait(Duration::from_secs(30))
        .respond(AsError);
    let handle = busy.handle();
    let client = ServiceBuilder::new()
        .map_response(|response: Response<_>| response.map(Body::new))
        .layer(pace)
        .layer(PacerLayer::new(Host).jitter(0).retry(Idempotent))
        .layer(busy)
        .service(transport);
    (Client::new(client), move || handle.limit())
}

// ---- What its users see.

use std::sync::{Arc, Mutex};

use tokio::{task::JoinSet, time::Instant, time::sleep};
use tower::{ServiceExt, service_fn};

async fn get(client: &Client) -> Result<Response<Body>, BoxError> {
    let request = Request::get("https://api.example/items").body(String::new())?;
    client.clone().oneshot(request).await
}

#[tokio::test(start_paused = true)]
async fn it_comes_back_when_the_server_says_so() {
    let begun = Instant::now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let (client, _) = client(service_fn(move |_| {
        let mut seen = log.lock().expect("no panic");
        seen.push(begun.elapsed().as_secs());
        let response = match seen.len() {
            1 => Response::builder().status(429).header("retry-after", "7"),
            // Of 10 requests 4 are left for the next 8 s.
            _ => Response::builder()
                .header("ratelimit-policy", r#""default";q=10;w=10"#)
                .header("ratelimit", r#""default";r=4;t=8"#),
        };
        std::future::ready(response.body("done".to_owned()).map_err(BoxError::from))
    }));
    for _ in 0..3 {
        assert_eq!(get(&client).await.expect("a response").status(), 200);
    }
    // The first one was sent again after 7 s, and the others use one of four in 8 s.
    assert_eq!(*seen.lock().expect("no panic"), [0, 7, 9, 11]);
}

#[tokio::test(start_paused = true)]
async fn it_paces_itself_and_finds_how_much_the_server_can_do_at_once() {
    // A server with ten threads that need half a second for a request: 20 per second.
    let threads = Arc::new(tokio::sync::Semaphore::new(10));
    let in_flight = Arc::new(Mutex::new((0, 0)));
    let count = Arc::clone(&in_flight);
    let (client, limit) = client(service_fn(move |_: Request<String>| {
        let (threads, count) = (Arc::clone(&threads), Arc::clone(&count));
        async move {
            {
                let mut count = count.lock().expect("no panic");
                count.0 += 1;
                count.1 = count.0.max(count.1);
            }
            let _thread = threads.acquire().await?;
            sleep(Duration::from_millis(500)).await;
            count.lock().expect("no panic").0 -= 1;
            Ok::<_, BoxError>(Response::new("done".to_owned()))
        }
    }));
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..900 {
        let client = client.clone();
        calls.spawn(async move { get(&client).await.is_ok() });
    }
    let served = calls.join_all().await.into_iter().filter(|ok| *ok).count();
    let seconds = begun.elapsed().as_secs();
    let (_, most) = *in_flight.lock().expect("no panic");
    println!(
        "{served} in {seconds} s, at most {most} at once, {} in the end",
        limit()
    );
    assert!((10..=20).contains(&limit()), "{}", limit());
    assert!(most <= 40, "{most} at once");
}
