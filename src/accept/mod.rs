//! Limits on connections, before TLS and before the first request.
//!
//! A limit on requests does not see a client that opens connections and sends nothing on them. A
//! [`ConnectionLimit`] counts them where they are accepted.
//!
//! # When a connection is accepted
//! 1. The kernel completes the handshake of TCP, before the program knows of the connection. Its queue
//!    (the backlog) is bounded by the kernel.
//! 2. The address of the peer becomes a [`Client`](crate::key::Client), as with
//!    [`ClientIp`](crate::ClientIp): an IPv4 address, or the /64 network of an IPv6 address.
//! 3. If the client has room, all clients together have, and the [rate](ConnectionLimit::rate) admits a
//!    new connection, the server gets the stream, as a [`Connection`] that holds its place.
//! 4. Otherwise the connection is closed at once, without a byte. The server does not see it.
//!
//! # What a refused peer sees
//! Its `connect` succeeds, because the kernel has answered, unless it looks late. Then the connection is
//! reset (RST): reading or writing fails with "connection reset by peer", and a TLS handshake with the same. No HTTP
//! status says why: without TLS there is no response yet. A reset leaves no `TIME_WAIT` on the server.
//!
//! # When a place is free again
//! When the [`Connection`] is dropped: the client hung up, the server closed it, a TLS handshake failed, a
//! task panicked. A connection that opens and says nothing counts until then, so give the server a timeout
//! for the head of a request and for the handshake.
//!
//! # Errors of accept
//! They are logged and counted, and the loop goes on. If the process has no file descriptor left
//! (`EMFILE`), it tries again 20 times per second.
//!
//! # Memory
//! Only clients with connections take up memory for them, about 40 bytes each, less than the sockets
//! do. The rate is kept for 100,000 clients in 2.9 MB.
#![cfg_attr(
    feature = "axum",
    doc = r#"
```
use std::{io::Result, net::SocketAddr};
use axum::{Router, extract::ConnectInfo, routing::get};
use tokio::net::TcpListener;
use tower_throttle::{Quota, accept::ConnectionLimit};

async fn serve(listener: TcpListener) -> Result<()> {
    // Per client, 100 connections at a time, and 20 new ones per second. 10,000 for all clients.
    let limit = ConnectionLimit::new(100).rate(Quota::per_second(20)).total(10_000);
    let app = Router::new().route("/", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| {
        peer.ip().to_string()
    }));
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(limit.listen(listener).for_axum(), service).await
}
```"#
)]

#[cfg(feature = "axum")]
mod axum;
mod connection;
mod limit;
mod listener;
mod refused;
mod signals;
#[cfg(feature = "tonic")]
mod tonic;

pub use self::{
    connection::Connection, limit::ConnectionLimit, listener::LimitedListener, refused::Refused,
    signals::ConnectionCounts,
};
