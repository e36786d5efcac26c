//! An axum server with the limits, on a runtime of its own.

use std::{
    future::pending,
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
    extract::Request,
    middleware::Next,
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
    pub(crate) fn start(limits: &Arc<Limits>) -> Self {
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
        let app = server.app();
        let listener = Counted {
            listener,
            open: Arc::clone(&server.open),
        };
        runtime.spawn(async { axum::serve(listener, app).await });
        server.runtime = Some(runtime);
        server
    }

    fn app(&self) -> Router {
        Router::new()
            .nest(
                "/queued",
                self.handlers("/queued")
                    .layer(self.limits.queued.clone().deny_when_full()),
            )
            .nest(
                "/slow",
                self.handlers("/slow").layer(self.limits.slow.clone()),
            )
            .nest(
                "/limited",
                self.handlers("/limited").layer(self.limits.limited.clone()),
            )
    }

    fn handlers(&self, path: &'static str) -> Router {
        let admitted = self.admitted.clone();
        let record = move |request: Request, next: Next| {
            admitted.record(path, &request);
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
    let begun = Instant::now();
    let mut turns = interval(Duration::from_millis(2));
    while begun.elapsed() < Duration::from_secs(60) {
        if condition() {
            return true;
        }
        turns.tick().await;
    }
    false
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
