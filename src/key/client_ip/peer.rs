//! The address at the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address at the other end of the connection, as a request extension.
///
/// axum and tonic insert types of their own; the features `axum` and `tonic` read these. Any other
/// server inserts a `PeerAddr`. So does a layer that knows the address better than the server does,
/// such as one for the PROXY protocol: a `PeerAddr` has priority over the other types.
///
/// ```
/// use tower_throttle::{ClientIp, key::{Extracted, KeyExtractor, PeerAddr}};
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr("192.0.2.7:4711".parse().unwrap()));
/// let Extracted::Key(client) = ClientIp::peer().extract(&request) else { unreachable!() };
/// assert_eq!(client.to_string(), "192.0.2.7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    match connect_info(extensions) {
        Some(address) => Some(address.ip()),
        None => rare_peer(extensions).map(|address| address.ip()),
    }
}

/// The address in the most common extensions.
///
/// It is borrowed, because copying it costs more than finding it.
pub(super) fn connect_info(extensions: &Extensions) -> Option<&SocketAddr> {
    let address = extensions.get().map(|PeerAddr(address)| address);
    #[cfg(feature = "axum")]
    let address = address.or_else(|| {
        let info = extensions.get::<axum::extract::ConnectInfo<_>>();
        info.map(|info| &info.0)
    });
    address
}

fn rare_peer(extensions: &Extensions) -> Option<SocketAddr> {
    let address = None;
    #[cfg(feature = "axum")]
    let address = address.or_else(|| {
        let info = extensions.get::<axum::extract::connect_info::MockConnectInfo<_>>();
        info.map(|info| info.0)
    });
    #[cfg(feature = "tonic")]
    let address = address.or_else(|| {
        let info = extensions.get::<tonic::transport::server::TcpConnectInfo>();
        info?.remote_addr()
    });
    #[cfg(feature = "tonic-tls")]
    let address = address.or_else(|| {
        use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
        let info = extensions.get::<TlsConnectInfo<TcpConnectInfo>>();
        info?.get_ref().remote_addr()
    });
    let _ = extensions;
    address
}
