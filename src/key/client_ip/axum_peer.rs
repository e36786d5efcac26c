//! The address in axum's extensions.

use std::net::SocketAddr;

use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use http::Extensions;

#[inline]
pub(super) fn connect_info(extensions: &Extensions) -> Option<&SocketAddr> {
    extensions.get().map(|ConnectInfo(address)| address)
}

pub(super) fn mock_connect_info(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get().map(|MockConnectInfo(address)| *address)
}
