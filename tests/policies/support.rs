//! An application behind the limits of a file.

use std::net::{IpAddr, SocketAddr};

use axum::{Router, body::Body, extract::Request, response::Response};
use http::StatusCode;
use tower::ServiceExt;
use tower_throttle::{
    key::PeerAddr,
    policy::{Environment, PolicyFile, PolicyHandle, PolicyLayer},
};

/// The limits of a file, around handlers that answer with the status in the header `answer`, and with
/// the headers that begin with `answer-`.
pub(crate) struct App {
    router: Router,
    pub(crate) handle: PolicyHandle,
}

#[derive(Clone)]
pub(crate) struct Account(pub(crate) &'static str);

pub(crate) fn file(text: &str) -> PolicyFile {
    PolicyFile::from_toml(&format!("version = 1\n{text}")).unwrap_or_else(|error| panic!("{error}"))
}

/// What is wrong with a file of these limits.
pub(crate) fn problems(text: &str) -> String {
    match PolicyFile::from_toml(&format!("version = 1\n{text}")) {
        Ok(file) => panic!("{text}\nread as {file:?}"),
        Err(problems) => problems.to_string(),
    }
}

/// One limit: its line, its key and more fields.
pub(crate) fn limit(name: &str, line: &str, key: &str, more: &str) -> String {
    format!("[[limit]]\nname = \"{name}\"\nlimit = \"{line}\"\nkey = {key}\n{more}\n")
}

pub(crate) fn environment() -> Environment {
    Environment::new().extension("account", |extensions| {
        let Account(name) = extensions.get()?;
        Some((*name).to_owned())
    })
}

impl App {
    pub(crate) fn new(text: &str) -> Self {
        Self::within(text, environment())
    }

    pub(crate) fn within(text: &str, environment: Environment) -> Self {
        let layer = PolicyLayer::new(file(text), environment);
        let layer = layer.unwrap_or_else(|error| panic!("{error}"));
        let handle = layer.handle();
        let answer = async |request: Request| {
            let status = request.headers().get("answer");
            let status = status.map_or(200, |status| status.to_str().unwrap().parse().unwrap());
            let mut response = Response::new(Body::from("done"));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            for name in ["content-type", "grpc-status"] {
                if let Some(value) = request.headers().get(format!("answer-{name}")) {
                    response.headers_mut().insert(name, value.clone());
                }
            }
            response
        };
        let router = Router::new()
            .route("/", axum::routing::any(answer))
            .route("/login", axum::routing::any(answer))
            .route("/users/{id}", axum::routing::any(answer))
            .layer(layer);
        Self { router, handle }
    }

    /// Reloads the limits, which must be right.
    pub(crate) fn reload(&self, text: &str) -> tower_throttle::policy::Reloaded {
        let reloaded = self.handle.reload(file(text));
        reloaded.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) async fn send(&self, request: Request) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn status(&self, request: Request) -> u16 {
        self.send(request).await.status().as_u16()
    }

    /// The status of a request of one client.
    pub(crate) async fn get(&self) -> u16 {
        self.status(from("192.0.2.1")).await
    }

    /// How many of so many requests of one client are admitted.
    pub(crate) async fn admitted(&self, requests: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += usize::from(self.get().await == 200);
        }
        admitted
    }
}

/// A request of the client at `address`.
pub(crate) fn from(address: &str) -> Request {
    at(address, "/")
}

pub(crate) fn at(address: &str, path: &str) -> Request {
    let mut request = without_address(path);
    let address: IpAddr = address.parse().unwrap();
    let peer = PeerAddr(SocketAddr::new(address, 4711));
    request.extensions_mut().insert(peer);
    request
}

/// A request over a connection whose peer is not known.
pub(crate) fn without_address(path: &str) -> Request {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().unwrap();
    request
}

/// The request with a header.
pub(crate) fn with(mut request: Request, name: &'static str, value: &str) -> Request {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}
