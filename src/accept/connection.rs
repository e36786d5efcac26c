//! A connection that holds its place.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::signals::Signals;
use crate::concurrency::permit::Permit;

/// The place of an open connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _of_client: Option<Permit>,
    _of_all: Option<Permit>,
    signals: Arc<Signals>,
}

impl ConnectionPermit {
    pub(super) fn new(
        of_client: Option<Permit>,
        of_all: Option<Permit>,
        signals: Arc<Signals>,
    ) -> Self {
        signals.opened();
        Self {
            _of_client: of_client,
            _of_all: of_all,
            signals,
        }
    }

    /// The stream, which holds the place until it is dropped.
    pub(super) const fn hold<S>(self, stream: S) -> Connection<S> {
        Connection {
            stream,
            permit: self,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.signals.closed();
    }
}

pin_project! {
    /// A stream that holds the place of its connection until it is dropped.
    ///
    /// A TLS acceptor takes it as it takes a stream; if the handshake fails, it drops the stream, and the
    /// place is free. In an upgraded connection, such as a WebSocket, it is still there.
    #[derive(Debug)]
    pub struct Connection<S> {
        // Dropped, and so closed, before the permit.
        #[pin]
        stream: S,
        permit: ConnectionPermit,
    }
}

impl<S> Connection<S> {
    /// The stream.
    ///
    /// ```
    /// use tower_throttle::accept::ConnectionLimit;
    ///
    /// let limit = ConnectionLimit::new(1);
    /// let stream = limit.admit("192.0.2.7".parse().unwrap(), "a stream").unwrap();
    /// assert_eq!(*stream.get_ref(), "a stream");
    /// ```
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead> AsyncRead for Connection<S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.project().stream.poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite> AsyncWrite for Connection<S> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write(cx, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }
}
