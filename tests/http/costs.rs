//! Costs that are known at the end of a response, over real servers.

use std::{
    collections::VecDeque,
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::{Body, Frame, Incoming},
    client::conn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, yield_now},
    time::timeout,
};
use tower::{Layer, service_fn};
use tower_throttle::{
    Global, Quota, RateLimitLayer, TokenBucket,
    layer::Handle,
    respond::{AtEnd, CostHandle},
};

const ESTIMATE: u64 = 40;

/// Ten words that cost 3 each, and trailers. The last ones only come once it is let.
#[derive(Default)]
struct Algorithm {
    left: VecDeque<Frame<Bytes>>,
    cost: CostHandle,
    gate: Arc<Mutex<Gate>>,
}

#[derive(Default)]
struct Gate {
    open: bool,
    waker: Option<Waker>,
}

impl Body for Algorithm {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.len() == 6 {
            let mut gate = self.gate.lock().unwrap();
            if !gate.open {
                gate.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        let frame = self.left.pop_front();
        if frame.as_ref().is_some_and(Frame::is_data) {
            self.cost.add(3);
        }
        Poll::Ready(frame.map(Ok))
    }
}

type Limit = Handle<(), <TokenBucket as tower_throttle::store::IntoBackend>::Backend>;

struct Server {
    address: SocketAddr,
    limit: Limit,
    gate: Arc<Mutex<Gate>>,
}

async fn serve() -> Server {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_day(100)))
        .cost(|_: &Request<Incoming>| ESTIMATE)
        .settle(AtEnd);
    let limit = layer.handle();
    let gate = Arc::new(Mutex::new(Gate::default()));
    let of_server = Arc::clone(&gate);
    let words = layer.layer(service_fn(move |request: Request<Incoming>| {
        let gate = Arc::clone(&of_server);
        async move {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let words = (0..10).map(|_| Frame::data(Bytes::from("word ")));
            Ok::<_, Infallible>(Response::new(Algorithm {
                left: words.chain([Frame::trailers(trailers)]).collect(),
                cost: request.extensions().get().cloned().unwrap_or_default(),
                gate,
            }))
        }
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(words.clone());
            tokio::spawn(async move {
                let stream = TokioIo::new(stream);
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(stream, service).await;
            });
        }
    });
    Server {
        address,
        limit,
        gate,
    }
}

impl Server {
    /// The response, and what ends its connection.
    async fn ask(&self, h2: bool) -> (Response<Incoming>, AbortHandle) {
        let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let request = Request::get(format!("http://{}/", self.address))
            .header("host", "local")
            .body(Empty::<Bytes>::new())
            .unwrap();
        if h2 {
            let executor = TokioExecutor::new();
            let (mut sender, connection) = conn::http2::handshake(executor, stream).await.unwrap();
            let connection = tokio::spawn(connection).abort_handle();
            (sender.send_request(request).await.unwrap(), connection)
        } else {
            let (mut sender, connection) = conn::http1::handshake(stream).await.unwrap();
            let connection = tokio::spawn(connection).abort_handle();
            (sender.send_request(request).await.unwrap(), connection)
        }
    }

    fn open(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.open = true;
        if let Some(waker) = gate.waker.take() {
            waker.wake();
        }
    }

    /// Whether so much is left in the end.
    async fn comes_to(&self, remaining: u64) -> bool {
        let settled = async {
            while self.limit.peek_now(&(), 0).remaining() != remaining {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), settled).await.is_ok()
    }
}

/// Shows promise 321.
#[tokio::test]
async fn a_streamed_response_costs_what_it_says_when_it_has_ended() {
    for h2 in [false, true] {
        let server = serve().await;
        let (response, _) = server.ask(h2).await;
        assert_eq!(
            server.limit.peek_now(&(), 0).remaining(),
            60,
            "the estimate"
        );
        server.open();
        let body = response.into_body().collect().await.unwrap();
        if h2 {
            assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        }
        assert_eq!(body.to_bytes().len(), 50);
        assert!(server.comes_to(70).await, "h2: {h2}");
    }
}

/// Shows promise 321.
#[tokio::test]
async fn of_a_client_that_goes_away_only_what_was_served_is_taken() {
    for h2 in [false, true] {
        let server = serve().await;
        let (response, connection) = server.ask(h2).await;
        let mut body = response.into_body();
        assert!(body.frame().await.is_some());
        drop(body);
        connection.abort();
        assert!(server.comes_to(85).await, "h2: {h2}: five words of 3");
    }
}
