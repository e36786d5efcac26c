//! Without the feature `axum`, nothing is known of its extensions.

use std::net::SocketAddr;

use http::Extensions;

pub(super) const fn connect_info(_: &Extensions) -> Option<&SocketAddr> {
    None
}

pub(super) const fn mock_connect_info(_: &Extensions) -> Option<SocketAddr> {
    None
}
