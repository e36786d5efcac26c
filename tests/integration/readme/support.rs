//! A minimal HTTP client.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) struct Response {
    pub(crate) status: u16,
    /// The whole response.
    pub(crate) head: String,
}

/// Sends one request, such as `GET /path`, with these header lines.
pub(crate) async fn send(address: SocketAddr, route: &str, headers: &str) -> Response {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("{route} HTTP/1.1\r\nhost: local\r\nconnection: close\r\n{headers}\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("an open connection");
    let mut head = String::new();
    stream.read_to_string(&mut head).await.expect("a response");
    let status = head
        .split(' ')
        .nth(1)
        .expect("a status")
        .parse()
        .expect("a number");
    Response { status, head }
}
