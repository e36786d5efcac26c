//! A listener that refuses what is over the limit.

use std::{
    io::{self, ErrorKind},
    mem,
    net::SocketAddr,
    time::Duration,
};

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connection::Connection;
use super::limit::ConnectionLimit;

/// After an error of accept that is not of one connection. Those that wait stay in the kernel's queue.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener whose connections are limited by a [`ConnectionLimit`].
///
/// axum takes it from `for_axum` (feature `axum`). hyper and others call [`accept`](Self::accept).
#[derive(Debug)]
pub struct LimitedListener {
    listener: TcpListener,
    limit: ConnectionLimit,
    /// Accept has failed since the last connection, which is logged once.
    is_failing: bool,
}

impl ConnectionLimit {
    /// Limits the connections of a listener.
    pub const fn listen(self, listener: TcpListener) -> LimitedListener {
        LimitedListener {
            listener,
            limit: self,
            is_failing: false,
        }
    }
}

impl LimitedListener {
    /// Waits for the next connection that is not refused. It never fails: errors are logged, counted, and
    /// tried again.
    ///
    /// # Cancel safety
    /// If the future is dropped, no accepted connection is lost.
    ///
    /// ```no_run
    /// use std::io;
    ///
    /// use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
    /// use hyper_util::rt::{TokioIo, TokioTimer};
    /// use tokio::net::TcpListener;
    /// use tower_throttle::accept::ConnectionLimit;
    ///
    /// async fn hello(_: Request<Incoming>) -> Result<Response<String>, hyper::Error> {
    ///     Ok(Response::new("hello".to_owned()))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> io::Result<()> {
    /// let listener = TcpListener::bind("0.0.0.0:3000").await?;
    /// let mut listener = ConnectionLimit::new(100).listen(listener);
    /// loop {
    ///     let (connection, _peer) = listener.accept().await;
    ///     // The timer closes connections that say nothing for 30 s.
    ///     let mut server = http1::Builder::new();
    ///     server.timer(TokioTimer::new());
    ///     let service = service_fn(hello);
    ///     tokio::spawn(server.serve_connection(TokioIo::new(connection), service));
    /// }
    /// # }
    /// ```
    pub async fn accept(&mut self) -> (Connection<TcpStream>, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    self.is_failing = false;
                    match self.limit.permit(peer.ip()) {
                        Ok(permit) => return (permit.hold(stream), peer),
                        Err(_) => reset(stream),
                    }
                }
                // The peer is gone already. The next one is not.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    let has_begun = !mem::replace(&mut self.is_failing, true);
                    self.limit.signals().failed(&error, has_begun);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// The address that the listener is bound to.
    ///
    /// # Errors
    /// Those of [`TcpListener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

/// Closes a connection at once, with a reset: what was not sent is dropped, and no `TIME_WAIT` remains.
fn reset(stream: TcpStream) {
    // If it fails, the connection is gone already. The other name for it, `set_zero_linger`, is newer than
    // the oldest tokio that the crate allows. With a time of zero, closing does not block.
    #[allow(deprecated, reason = "only times above zero block")]
    let _ = stream.set_linger(Some(Duration::ZERO));
    drop(stream);
}
