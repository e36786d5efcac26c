//! A client that keeps to its server's limit: `cargo run --example client_pacing`
//!
//! The program starts a server that admits 20 requests per second and states its limit, and sends 60 requests
//! with 20 tasks: by a plain hyper client, by one that obeys what the server states, and by one that has a
//! limit of its own as well. It prints how many the server denied. `-- http://localhost:3000/` asks another server.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, response::Response, routing::get};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt, layer::util::Identity,
    util::BoxCloneService,
};
use tower_throttle::{
    AsError, FixedWindow, Global, Headers, LeakyBucket, Quota, RateLimitLayer,
    client::{Host, PacerLayer},
};

const REQUESTS: usize = 60;

type HttpClient = BoxCloneService<Request, Response, BoxError>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let plain = denied("plain", Identity::new()).await?;
    let paced = denied("paced", PacerLayer::new(Host)).await?;

    // 18 per second, evenly spaced. At most 100 calls are queued, each for at most 10 s.
    let own = LeakyBucket::new(Quota::per_second(18).burst(1));
    let both = ServiceBuilder::new()
        // A refused call returns an error, because no HTTP response exists.
        .layer(
            RateLimitLayer::new(Global, own)
                .queue(100)
                .max_wait(Duration::from_secs(10))
                .respond(AsError),
        )
        .layer(PacerLayer::new(Host));
    let both = denied("paced, with a limit of its own", both).await?;

    if env::args().len() == 1 {
        assert!(plain > 0);
        assert_eq!((paced, both), (0, 0));
    }
    Ok(())
}

/// How many of the requests a new server denies.
async fn denied<L, S>(name: &str, layer: L) -> Result<usize, BoxError>
where
    L: Layer<HttpClient, Service = S>,
    S: Service<Request, Response = Response, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    let uri = match env::args().nth(1) {
        Some(uri) => uri,
        None => serve().await?,
    };
    let denied = Arc::new(AtomicUsize::new(0));
    let count = denied.clone();
    let client = ServiceBuilder::new()
        .map_response(move |response: axum::http::Response<_>| {
            count.fetch_add(usize::from(response.status() == 429), Ordering::Relaxed);
            response.map(Body::new)
        })
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());
    let client = layer.layer(HttpClient::new(client));

    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (client, uri) = (client.clone(), uri.clone());
        tasks.spawn(async move {
            for _ in 0..REQUESTS / 20 {
                let request = Request::get(&uri).body(Body::empty())?;
                client.clone().oneshot(request).await?;
            }
            Ok::<_, BoxError>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    let denied = denied.load(Ordering::Relaxed);
    let time = start.elapsed().as_millis();
    println!("{name}: {denied} of {REQUESTS} denied, in {time} ms");
    Ok(denied)
}

/// The address of a new server.
async fn serve() -> Result<String, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let limit = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_second(20)))
        .headers(Headers::Draft11);
    let server = Router::new().route("/", get(async || "hello").layer(limit));
    tokio::spawn(async { axum::serve(listener, server).await });
    Ok(format!("http://{address}/"))
}
