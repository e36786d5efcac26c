//! Every provided key with every backend: an axum `Router` that is asked.
#![cfg(all(feature = "axum", feature = "cas", feature = "redis"))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    http::StatusCode,
    response::IntoResponse,
    routing::{Route, get},
};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{
    ClientIp, Global, HeaderKey, Local, Quota, RateLimitLayer, SlidingLog, TokenBucket,
    key::{FromExtension, Key, KeyExtractor, MatchedPath},
    store::{
        Fallback,
        cas::{CasBuilder, MemoryStore},
        redis::Redis,
        remote::{KeyName, RemoteKey},
    },
};

use test_support::redis_server::RedisServer;

/// A client, as far as keys depend on it.
#[derive(Clone, Copy)]
struct Sender {
    peer: [u8; 4],
    secret: &'static str,
    user: u32,
    path: &'static str,
}

const ANN: Sender = Sender {
    peer: [192, 0, 2, 1],
    secret: "hunter2-of-ann",
    user: 1,
    path: "/a",
};

const BOB: Sender = Sender {
    peer: [192, 0, 2, 2],
    secret: "hunter2-of-bob",
    user: 2,
    path: "/b",
};

/// A key of the user's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct User(u32);

impl Key for User {}

impl RemoteKey for User {
    fn write(&self, name: &mut KeyName) {
        self.0.write(name);
    }
}

impl Sender {
    fn request(self) -> Request {
        let mut request = Request::builder()
            .uri(self.path)
            .header("x-api-key", self.secret)
            .header("authorization", format!("Bearer {}", self.secret))
            .body(Body::empty())
            .unwrap();
        let peer = SocketAddr::from((self.peer, 4711));
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(User(self.user));
        request
    }
}

fn app<L>(layer: L) -> Router
where
    L: Layer<Route> + Clone + Send + Sync + 'static,
    L::Service: Service<Request, Response: IntoResponse, Error: Into<Infallible>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    Router::new()
        .route("/a", get(|| async {}))
        .route("/b", get(|| async {}))
        .layer(layer)
}

async fn statuses(app: &Router, senders: &[Sender]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for sender in senders {
        let response = app.clone().oneshot(sender.request()).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

struct Matrix {
    server: RedisServer,
    redis: Redis,
    unreachable: Redis,
}

fn bucket() -> TokenBucket {
    TokenBucket::new(Quota::per_hour(2))
}

fn log() -> SlidingLog {
    SlidingLog::new(Quota::per_day(3))
}

impl Matrix {
    fn start() -> Self {
        let server = RedisServer::start();
        let patient = Duration::from_secs(10);
        Self {
            redis: Redis::open(&server.url()).unwrap().deadline(patient),
            unreachable: Redis::open("redis://127.0.0.1:1").unwrap(),
            server,
        }
    }

    /// Each backend allows Ann two requests, denies the third, and counts `others` separately.
    async fn check<K>(&self, what: &str, keys: K, others: &[Sender])
    where
        K: KeyExtractor<Request> + Clone + Send + Sync + 'static,
        K::Key: RemoteKey + Clone + Send + Sync + Unpin + 'static,
    {
        // A policy name is made of letters, digits and few other characters.
        let name = |backend: &str| {
            let name = format!("{what}.{backend}");
            name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-")
        };
        let keys = || keys.clone();
        let of_redis = self.redis.limiter(&name("Redis"), bucket());
        let several = self
            .redis
            .limiter(&name("Redis several"), (bucket(), log()));
        // Its stand-in would deny the second request.
        let covered = Fallback::new(
            self.redis.limiter(&name("Fallback"), bucket()),
            Local::new(TokenBucket::new(Quota::per_hour(1))),
        );
        let covering = Fallback::new(
            self.unreachable.limiter(&name("down"), bucket()),
            Local::new(bucket()),
        );
        let in_store = || CasBuilder::new(MemoryStore::new()).deadline(Duration::from_secs(10));
        let of_store = in_store().build("one", bucket()).unwrap();
        let several_of_store = in_store().build("several", (bucket(), log())).unwrap();
        let apps = [
            ("Cas", app(RateLimitLayer::new(keys(), of_store))),
            (
                "Cas several",
                app(RateLimitLayer::new(keys(), several_of_store)),
            ),
            ("Local", app(RateLimitLayer::new(keys(), bucket()))),
            (
                "several",
                app(RateLimitLayer::new(keys(), (bucket(), log()))),
            ),
            ("Redis", app(RateLimitLayer::new(keys(), of_redis))),
            ("Redis several", app(RateLimitLayer::new(keys(), several))),
            ("Fallback", app(RateLimitLayer::new(keys(), covered))),
            (
                "Fallback covering",
                app(RateLimitLayer::new(keys(), covering)),
            ),
        ];
        for (backend, app) in apps {
            let ann = statuses(&app, &[ANN, ANN, ANN]).await;
            assert_eq!(ann, [200, 200, 429], "{what} with {backend}");
            for (at, other) in others.iter().enumerate() {
                let other = statuses(&app, &[*other, *other, *other]).await;
                assert_eq!(other, [200, 200, 429], "{what} with {backend}, other {at}");
            }
        }
    }

    /// The names of all keys that the server holds.
    fn names(&self) -> Vec<String> {
        let mut connection = self.server.connection();
        redis::cmd("KEYS").arg("*").query(&mut connection).unwrap()
    }
}

/// Every provided key works with every backend: equal keys share a limit and different keys do not.
#[tokio::test]
async fn every_provided_key_works_with_every_backend() {
    let matrix = Matrix::start();
    let other = &[BOB];
    matrix.check("Global", Global, &[]).await;
    matrix.check("ClientIp", ClientIp::peer(), other).await;
    let header = HeaderKey::new("X-Api-Key");
    matrix.check("HeaderKey", header.clone(), other).await;
    matrix
        .check("HeaderKey::bearer", HeaderKey::bearer(), other)
        .await;
    let users = FromExtension::<User>::new();
    matrix.check("FromExtension", users, other).await;
    matrix.check("MatchedPath", MatchedPath::new(), other).await;
    let tokens_or_clients = HeaderKey::bearer().or(ClientIp::peer());
    matrix.check("Or", tokens_or_clients, other).await;
    let clients = HeaderKey::new("absent").or(HeaderKey::bearer()).or(Global);
    matrix.check("Or of three", clients, other).await;

    // Each part of a tuple counts.
    let elsewhere = Sender { path: "/b", ..ANN };
    let moved = Sender {
        peer: BOB.peer,
        ..ANN
    };
    let pair = (ClientIp::peer(), MatchedPath::new());
    matrix.check("pair", pair, &[BOB, elsewhere, moved]).await;
    let triple = ((header, ClientIp::peer()), users);
    let renamed = Sender { user: 2, ..ANN };
    matrix.check("triple", triple, &[BOB, moved, renamed]).await;

    let names = matrix.names();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(!name.contains("hunter2"), "{name}");
    }
}

/// Shows promise 52.
#[tokio::test]
async fn a_request_without_a_peer_address_gets_the_remedy_as_text() {
    let app = app(RateLimitLayer::new(ClientIp::peer(), bucket()));
    let request = Request::builder().uri("/a").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    let body = axum::body::to_bytes(response.into_body(), 10_000)
        .await
        .unwrap();
    let body = String::from_utf8(body.into()).unwrap();
    for text in [
        "feature `axum`",
        "into_make_service_with_connect_info::<SocketAddr>()",
        "feature `tonic`",
        "if_missing(Missing::Shared)",
    ] {
        assert!(body.contains(text), "{body}");
        assert!(
            headers["x-ratelimit-error"]
                .to_str()
                .unwrap()
                .contains(text)
        );
    }
}
