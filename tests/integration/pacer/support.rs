//! A server in this process that sees what a client does wrong.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{BoxError, Service};

/// Admits `limit` requests per 10 s, and says only `Retry-After`.
#[derive(Clone)]
pub(crate) struct Server {
    limit: usize,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
pub(crate) struct Seen {
    window: Option<(Instant, usize)>,
    denied_at: Option<Instant>,
    pub(crate) requests: usize,
    pub(crate) posts: usize,
    pub(crate) denied: usize,
    /// Requests after a denial and before its time.
    pub(crate) early: usize,
}

pub(crate) const WINDOW: Duration = Duration::from_secs(10);
const LATENCY: Duration = Duration::from_millis(10);

impl Server {
    pub(crate) fn new(limit: usize) -> Self {
        let seen = Arc::default();
        Self { limit, seen }
    }
}

impl Service<Request<String>> for Server {
    type Response = Response<String>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap();
        seen.requests += 1;
        seen.posts += usize::from(request.method() == Method::POST);
        let (start, count) = match seen.window {
            Some((start, count)) if now < start + WINDOW => (start, count + 1),
            _ => (now, 1),
        };
        seen.window = Some((start, count));
        let is_told = seen
            .denied_at
            .is_some_and(|at| at > start && at + LATENCY < now);
        seen.early += usize::from(is_told && now < start + WINDOW);
        let mut response = Response::new("fine".to_owned());
        if count > self.limit {
            seen.denied += 1;
            seen.denied_at = Some(now);
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            let wait = (start + WINDOW - now).as_millis().div_ceil(1_000);
            response
                .headers_mut()
                .insert("retry-after", wait.to_string().parse().unwrap());
        }
        Box::pin(async {
            tokio::time::sleep(LATENCY).await;
            Ok(response)
        })
    }
}

pub(crate) fn request(method: Method) -> Request<String> {
    let request = Request::builder().method(method).uri("http://api.example/");
    request.body("body".to_owned()).unwrap()
}
