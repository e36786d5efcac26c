//! A route with a limit, and what it has returned.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use tokio::{sync::watch, time::Instant};
use tower::ServiceExt;
use tower_throttle::HeaderKey;

use crate::{
    route::{CLIENT, COST, IMPORTANT, PATH, PRIORITY, Route},
    sample::{LaneSample, Level, Waiter, millis},
    setting::One,
    tally::{Outcome, Tally},
};

/// How many requests of the line of client 1 are shown.
const SHOWN: usize = 12;

/// A route, which may be replaced by the one of a new process, and what it has returned.
pub(crate) struct Lane {
    route: watch::Sender<Arc<Route>>,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    tally: Tally,
    /// The number of the last request.
    last: u64,
    /// The requests of client 1 without a response, by number: whether they are important, and since when they wait.
    waiting: BTreeMap<u64, (bool, Instant)>,
}

/// A request without a response.
struct Pending<'a>(&'a Lane, u64);

impl Lane {
    pub(crate) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self {
            route: watch::Sender::new(Arc::new(route)),
            now: Mutex::default(),
        })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and counts the response.
    pub(crate) async fn send(&self, client: u64, one: One) -> Response {
        let mut request = Request::new(Body::empty());
        let headers = request.headers_mut();
        headers.insert(CLIENT, client.into());
        headers.insert(COST, one.cost.into());
        if one.important {
            headers.insert(PRIORITY, HeaderValue::from_static(IMPORTANT));
        }
        self.call(request).await
    }

    /// Sends a request that came over HTTP, and counts the response.
    pub(crate) async fn forward(&self, request: Request) -> Response {
        let mut own = Request::new(Body::empty());
        *own.headers_mut() = request.headers().clone();
        own.headers_mut()
            .entry(CLIENT)
            .or_insert(HeaderValue::from(1_u64));
        self.call(own).await
    }

    async fn call(&self, mut request: Request) -> Response {
        *request.uri_mut() = Uri::from_static(PATH);
        let start = Instant::now();
        let _pending = self.pending(&request, start);
        let mut current = self.route.subscribe();
        let route = current.borrow_and_update().service();
        tokio::select! {
            Ok(response) = route.oneshot(request) => {
                let outcome = Outcome::of(&response, start.elapsed());
                self.now().tally.record(outcome, &response);
                response
            }
            // Its process has ended.
            _ = current.changed() => StatusCode::BAD_GATEWAY.into_response(),
        }
    }

    fn pending(&self, request: &Request, start: Instant) -> Pending<'_> {
        let headers = request.headers();
        let mut now = self.now();
        now.last += 1;
        let number = now.last;
        if headers.get(CLIENT) == Some(&HeaderValue::from(1_u64)) {
            let important = headers.get(PRIORITY);
            let important = important.is_some_and(|priority| priority == IMPORTANT);
            now.waiting.insert(number, (important, start));
        }
        Pending(self, number)
    }

    /// The route of the present process.
    pub(crate) fn route(&self) -> Arc<Route> {
        Arc::clone(&self.route.borrow())
    }

    /// Ends the process, and with it the requests that wait in it; the next one has this route.
    pub(crate) fn replace(&self, route: Route) {
        self.route.send_replace(Arc::new(route));
    }

    /// What happened since the last sample, and the present state of each client.
    pub(crate) fn sample(&self, clients: u64) -> LaneSample {
        let route = self.route();
        let level = |client: u64| {
            let peek = route.peek(&HeaderKey::key(client.to_string()))?;
            Some(Level::of(&peek))
        };
        let mut now = self.now();
        let line = if route.has_line() {
            now.line()
        } else {
            Vec::new()
        };
        let tally = std::mem::take(&mut now.tally);
        drop(now);
        let levels = (1..=clients).map_while(level).collect();
        LaneSample::new(tally, route.waiting(), line, levels)
    }
}

impl Now {
    /// The line of client 1: important requests first, and those of one kind as they came.
    fn line(&self) -> Vec<Waiter> {
        let mut line: Vec<_> = self.waiting.iter().collect();
        line.sort_by_key(|(_, (important, _))| !important);
        let shown = line.into_iter().take(SHOWN);
        let waiter = |(&number, &(important, since)): (&u64, &(bool, Instant))| Waiter {
            number,
            important,
            waits: millis(since.elapsed()),
        };
        shown.map(waiter).collect()
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.now().waiting.remove(&self.1);
    }
}
