//! A client that behaves badly: bytes over TCP, and streams over HTTP/2.

use std::{net::SocketAddr, sync::Arc};

use http::Request;
use http_body_util::Empty;
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use std::sync::atomic::{AtomicUsize, Ordering};

/// What became of requests.
#[derive(Clone, Default)]
pub(crate) struct Outcomes(Arc<Counts>);

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    sent: AtomicUsize,
    served: AtomicUsize,
    denied: AtomicUsize,
    cut: AtomicUsize,
}

impl Outcomes {
    pub(crate) fn connected(&self) {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self) {
        self.0.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// `None` if there was no response.
    pub(crate) fn ended(&self, status: Option<u16>) {
        let count = match status {
            Some(200) => &self.0.served,
            Some(429) => &self.0.denied,
            _ => &self.0.cut,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, [connections, sent, served, denied, cut]: [usize; 5]) {
        for (count, more) in [
            (&self.0.connections, connections),
            (&self.0.sent, sent),
            (&self.0.served, served),
            (&self.0.denied, denied),
            (&self.0.cut, cut),
        ] {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Connections, and of the requests: sent, served, denied, cut.
    pub(crate) fn figures(&self) -> [usize; 5] {
        let Counts {
            connections,
            sent,
            served,
            denied,
            cut,
        } = &*self.0;
        [connections, sent, served, denied, cut].map(|count| count.load(Ordering::Relaxed))
    }
}

/// A connection that is reset unless it is closed by the server.
pub(crate) struct Wire {
    stream: TcpStream,
    outcomes: Outcomes,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr, outcomes: &Outcomes) -> Option<Self> {
        let stream = TcpStream::connect(address).await.ok()?;
        outcomes.connected();
        Some(Self {
            stream,
            outcomes: outcomes.clone(),
        })
    }

    /// Sends a whole request without a body, after which the server closes the connection.
    pub(crate) async fn get(&mut self, path: &str, client: &str) {
        self.outcomes.sent();
        let text = head("GET", path, client);
        self.bytes(format!("{text}connection: close\r\n\r\n").as_bytes())
            .await;
    }

    /// Sends bytes, unless the connection is broken.
    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads the status, and no more than the first bytes of the response.
    pub(crate) async fn status(&mut self) -> Option<u16> {
        let mut start = [0; 12];
        let read = self.stream.read_exact(&mut start).await;
        let status = read.ok().and_then(|_| {
            let text = std::str::from_utf8(&start).ok()?;
            text.strip_prefix("HTTP/1.1 ")?.parse().ok()
        });
        self.outcomes.ended(status);
        status
    }

    /// Ends the connection at once, with data on its way.
    pub(crate) fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    /// The same, for a request without a response.
    pub(crate) fn cut(self) {
        self.outcomes.ended(None);
        self.reset();
    }
}

/// The start of a request, without the end of its head.
pub(crate) fn head(method: &str, path: &str, client: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: local\r\nx-client: {client}\r\n")
}

pub(crate) type Sender = http2::SendRequest<Empty<Bytes>>;

pub(crate) async fn http2(address: SocketAddr, outcomes: &Outcomes) -> Option<Sender> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .ok()?;
    outcomes.connected();
    tokio::spawn(connection);
    Some(sender)
}

/// Sends a request as a stream. Dropping the future resets the stream.
pub(crate) async fn stream(mut sender: Sender, path: &str, client: String, outcomes: Outcomes) {
    /// Counts the request as cut, unless it had a response.
    struct Cut(Outcomes, bool);
    impl Drop for Cut {
        fn drop(&mut self) {
            if self.1 {
                self.0.ended(None);
            }
        }
    }

    outcomes.sent();
    let mut cut = Cut(outcomes.clone(), true);
    let request = Request::get(format!("http://local{path}"))
        .header("x-client", client)
        .body(Empty::new())
        .unwrap();
    if let Ok(response) = sender.send_request(request).await {
        cut.1 = false;
        outcomes.ended(Some(response.status().as_u16()));
    }
}
