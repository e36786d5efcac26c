//! A client that behaves badly: bytes over TCP, and streams over HTTP/2.

use std::net::SocketAddr;

use http::Request;
use http_body_util::Empty;
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A connection that is reset unless it is closed by the server.
pub(crate) struct Wire(TcpStream);

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).await.ok().map(Self)
    }

    /// Sends a whole request without a body, after which the server closes the connection.
    pub(crate) async fn get(&mut self, path: &str, client: &str) {
        let text = head("GET", path, client);
        self.bytes(format!("{text}connection: close\r\n\r\n").as_bytes())
            .await;
    }

    /// Sends bytes, unless the connection is broken.
    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    /// Reads the status, and no more than the first bytes of the response.
    pub(crate) async fn status(&mut self) -> Option<u16> {
        let mut start = [0; 12];
        let read = self.0.read_exact(&mut start).await;
        read.ok().and_then(|_| {
            let text = std::str::from_utf8(&start).ok()?;
            text.strip_prefix("HTTP/1.1 ")?.parse().ok()
        })
    }

    /// Ends the connection at once, with data on its way.
    pub(crate) fn reset(self) {
        let _ = self.0.set_zero_linger();
    }
}

/// The start of a request, without the end of its head.
pub(crate) fn head(method: &str, path: &str, client: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: local\r\nx-client: {client}\r\n")
}

pub(crate) type Sender = http2::SendRequest<Empty<Bytes>>;

pub(crate) async fn http2(address: SocketAddr) -> Option<Sender> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .ok()?;
    tokio::spawn(connection);
    Some(sender)
}

/// Sends a request as a stream. Dropping the future resets the stream.
pub(crate) async fn stream(mut sender: Sender, path: &str, client: String) {
    let request = Request::get(format!("http://local{path}"))
        .header("x-client", client)
        .body(Empty::new())
        .unwrap();
    let _ = sender.send_request(request).await;
}
