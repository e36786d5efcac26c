//! The listener in axum.

use std::{future::Future, io, net::SocketAddr};

use axum::serve::{Listener, ListenerExt, TapIo};
use tokio::net::TcpStream;

use super::connection::Connection;
use super::listener::LimitedListener;

impl Listener for LimitedListener {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    fn accept(&mut self) -> impl Future<Output = (Self::Io, SocketAddr)> + Send {
        Self::accept(self)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl LimitedListener {
    /// The listener for `axum::serve`, with which
    /// `into_make_service_with_connect_info::<SocketAddr>()` works.
    ///
    /// axum knows the address of a connection only from listeners of its own. `TapIo` is one, around this
    /// one. If your program calls [`tap_io`](ListenerExt::tap_io) anyway, to set `TCP_NODELAY`, that is
    /// enough: `limit.listen(listener).tap_io(|io| drop(io.get_ref().set_nodelay(true)))`.
    pub fn for_axum(self) -> TapIo<Self, fn(&mut Connection<TcpStream>)> {
        self.tap_io(|_| ())
    }
}
