//! The address at the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

use super::axum_peer;

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
        None => tonic_or_mock_peer(extensions),
    }
}

/// The address in the most common extensions.
///
/// It is borrowed, because copying it costs more than finding it.
pub(super) fn connect_info(extensions: &Extensions) -> Option<&SocketAddr> {
    let inserted = extensions.get().map(|PeerAddr(address)| address);
    inserted.or_else(|| axum_peer::connect_info(extensions))
}

fn tonic_or_mock_peer(extensions: &Extensions) -> Option<IpAddr> {
    axum_peer::mock_connect_info(extensions)
        .or_else(|| tonic_peer(extensions))
        .or_else(|| tonic_tls_peer(extensions))
        .map(|address| address.ip())
}

#[cfg(feature = "tonic")]
fn tonic_peer(extensions: &Extensions) -> Option<SocketAddr> {
    extensions
        .get::<tonic::transport::server::TcpConnectInfo>()?
        .remote_addr()
}

#[cfg(feature = "tonic-tls")]
fn tonic_tls_peer(extensions: &Extensions) -> Option<SocketAddr> {
    use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};

    extensions
        .get::<TlsConnectInfo<TcpConnectInfo>>()?
        .get_ref()
        .remote_addr()
}

#[cfg(not(feature = "tonic"))]
const fn tonic_peer(_: &Extensions) -> Option<SocketAddr> {
    None
}

#[cfg(not(feature = "tonic-tls"))]
const fn tonic_tls_peer(_: &Extensions) -> Option<SocketAddr> {
    None
}
