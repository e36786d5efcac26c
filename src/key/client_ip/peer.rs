//! Who is at the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address at the other end of the connection, as a request extension.
///
/// axum and tonic leave it in types of their own, which are read with the features `axum` and
/// `tonic`. A server of your own inserts this one, and so may a layer that knows better than the
/// connection, such as one that reads the PROXY protocol: it goes before the others.
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
    match known(extensions) {
        Some(address) => Some(address.ip()),
        None => others(extensions),
    }
}

/// The address where it usually is, not copied: taking it apart and together again costs more than
/// finding it. A call, so that what makes a key of it is short enough to be inlined.
#[inline(never)]
pub(super) fn known(extensions: &Extensions) -> Option<&SocketAddr> {
    let inserted = extensions.get().map(|PeerAddr(address)| address);
    inserted.or_else(|| axum(extensions))
}

#[inline(never)]
fn others(extensions: &Extensions) -> Option<IpAddr> {
    mock_connect_info(extensions)
        .or_else(|| tonic(extensions))
        .or_else(|| tonic_tls_peer(extensions))
        .map(|address| address.ip())
}

#[cfg(feature = "axum")]
#[inline]
fn axum(extensions: &Extensions) -> Option<&SocketAddr> {
    use axum::extract::connect_info::ConnectInfo;

    extensions.get().map(|ConnectInfo(address)| address)
}

#[cfg(feature = "axum")]
fn mock_connect_info(extensions: &Extensions) -> Option<SocketAddr> {
    use axum::extract::connect_info::MockConnectInfo;

    extensions.get().map(|MockConnectInfo(address)| *address)
}

#[cfg(feature = "tonic")]
fn tonic(extensions: &Extensions) -> Option<SocketAddr> {
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

#[cfg(not(feature = "axum"))]
const fn axum(_: &Extensions) -> Option<&SocketAddr> {
    None
}

#[cfg(not(feature = "axum"))]
const fn mock_connect_info(_: &Extensions) -> Option<SocketAddr> {
    None
}

#[cfg(not(feature = "tonic"))]
const fn tonic(_: &Extensions) -> Option<SocketAddr> {
    None
}

#[cfg(not(feature = "tonic-tls"))]
const fn tonic_tls_peer(_: &Extensions) -> Option<SocketAddr> {
    None
}
