//! An axum server with the limits, on a runtime of its own.

use std::{
    future::{Future, pending},
    io::{self, IoSlice},
    net::SocketAddr,
    panic::resume_unwind,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::{any, get, post},
    serve::Listener,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    time::{Instant, interval},
};

use crate::limits::{Admitted, Limits};

/// More than the buffers of a connection hold.
static LARGE: [u8; 16 << 20] = [0; 16 << 20];

/// A mistake that a check has to find: what happens when a client leaves before its response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Plant {
    Nothing,
    KeepsSeat,
    KeepsPosition,
    KeepsWaiter,
    KeepsSlot,
    KeepsMemory,
    CountsTwice,
}

/// A running server, and its limits.
pub(crate) struct Server {
    pub(crate) limits: Arc<Limits>,
    pub(crate) admitted: Admitted,
    pub(crate) address: SocketAddr,
    /// Open connections.
    open: Arc<AtomicUsize>,
    /// Requests in handlers that never end.
    pub(crate) stuck: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

impl Server {
    pub(crate) fn start(limits: &Arc<Limits>, plant: Plant) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Self {
            limits: Arc::clone(limits),
            admitted: Admitted::default(),
            address,
            open: Arc::default(),
            stuck: Arc::default(),
            runtime: None,
        };
        let app = server.app(plant);
        let listener = Counted {
            listener,
            open: Arc::clone(&server.open),
        };
        runtime.spawn(async { axum::serve(listener, app).await });
        server.runtime = Some(runtime);
        server
    }

    fn app(&self, plant: Plant) -> Router {
        let cut = Cut {
            limits: Arc::clone(&self.limits),
            plant,
        };
        Router::new()
            .nest(
                "/queued",
                self.handlers("/queued", plant)
                    .layer(self.limits.queued.clone()),
            )
            .nest(
                "/slow",
                self.handlers("/slow", plant)
                    .layer(self.limits.slow.clone()),
            )
            .nest(
                "/limited",
                self.handlers("/limited", plant)
                    .layer(self.limits.limited.clone()),
            )
            .layer(from_fn_with_state(cut, watch))
    }

    fn handlers(&self, path: &'static str, plant: Plant) -> Router {
        let admitted = self.admitted.clone();
        let record = move |request: Request, next: Next| {
            admitted.record(path, &request);
            if plant == Plant::CountsTwice {
                admitted.record(path, &request);
            }
            next.run(request)
        };
        let stuck = Arc::clone(&self.stuck);
        let never = async move || {
            let _stuck = Counter::new(&stuck);
            pending::<()>().await;
        };
        // Without the message of a panic.
        let panics = async || -> () { resume_unwind(Box::new("a handler panics")) };
        Router::new()
            .route("/quick", any(async || "done"))
            .route(
                "/large",
                get(async || Body::from(Bytes::from_static(&LARGE))),
            )
            .route("/upload", post(async |body: Bytes| body.len().to_string()))
            .route("/panic", any(panics))
            .route("/never", any(never))
            .layer(axum::middleware::from_fn(record))
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn stuck(&self) -> usize {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Drops the runtime and all its tasks, whatever they do.
    pub(crate) fn shut_down(&mut self) {
        drop(self.runtime.take());
    }
}

/// Waits until `condition` holds, at most a minute. Returns whether it does.
pub(crate) async fn until(condition: impl Fn() -> bool) -> bool {
    within(Duration::from_secs(60), condition).await
}

/// Waits until `condition` holds, at most for `span`. Returns whether it does.
pub(crate) async fn within(span: Duration, condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    let mut turns = interval(Duration::from_millis(2));
    while begun.elapsed() < span {
        if condition() {
            return true;
        }
        turns.tick().await;
    }
    false
}

/// Outside of the limits: what happens to a request whose client leaves.
#[derive(Clone)]
struct Cut {
    limits: Arc<Limits>,
    plant: Plant,
}

async fn watch(State(cut): State<Cut>, request: Request, next: Next) -> Response {
    let slow = request.uri().path().starts_with("/slow");
    let client = request.headers().get("x-client").cloned();
    let response = Box::pin(next.run(request));
    let planted = slow && cut.plant != Plant::Nothing;
    if !planted {
        return response.await;
    }
    let name = client.as_ref().and_then(|name| name.to_str().ok());
    let mut leaving = Leaving {
        cut,
        client: name.unwrap_or_default().to_owned(),
        response: Some(response),
    };
    let response = std::future::poll_fn(|cx| match &mut leaving.response {
        Some(response) => response.as_mut().poll(cx),
        None => Poll::Pending,
    })
    .await;
    leaving.response = None;
    response
}

/// A response that the client has not waited for, when it is dropped.
struct Leaving {
    cut: Cut,
    client: String,
    response: Option<Pin<Box<dyn Future<Output = Response> + Send>>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(response) = self.response.take() else {
            return;
        };
        match self.cut.plant {
            Plant::KeepsSeat => self.cut.limits.leak_seat(),
            Plant::KeepsPosition => self.cut.limits.charge(&self.client),
            Plant::KeepsSlot => self.cut.limits.charge(&format!("{}, kept", self.client)),
            Plant::KeepsMemory => std::mem::forget(std::hint::black_box(vec![0_u8; 4_096])),
            Plant::KeepsWaiter => return std::mem::forget(response),
            Plant::Nothing | Plant::CountsTwice => {}
        }
        drop(response);
    }
}

/// Counts as long as it lives.
struct Counter(Arc<AtomicUsize>);

impl Counter {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A listener that counts its open connections.
struct Counted {
    listener: TcpListener,
    open: Arc<AtomicUsize>,
}

struct Connection {
    stream: TcpStream,
    _open: Counter,
}

impl Listener for Counted {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            _open: Counter::new(&self.open),
        };
        (connection, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
