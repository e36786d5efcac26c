//! An application whose handler counts its calls, served on a port.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Body, extract::Request, response::Response};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;
use tower_throttle::policy::{Environment, PolicyFile, PolicyLayer};

/// How often the handler was called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<AtomicUsize>);

impl Calls {
    pub(crate) fn record(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

pub(crate) fn policy(text: &str) -> PolicyLayer {
    let file = PolicyFile::from_toml(&format!("version = 1\n{text}")).unwrap();
    PolicyLayer::new(file, Environment::new()).unwrap()
}

pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends these bytes over a connection of its own, and returns all that comes back.
pub(crate) async fn send(address: SocketAddr, text: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(text.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    connection.read_to_end(&mut response).await.unwrap();
    String::from_utf8(response).unwrap()
}

pub(crate) async fn ask(app: &Router, request: Request) -> Response<Body> {
    app.clone().oneshot(request).await.unwrap()
}
