//! Keys that stand in an HTTP request.

use http::{HeaderValue, Request, StatusCode};
use tower_throttle::{
    ClientIp, FixedWindow, HeaderKey, Quota, RateLimitLayer,
    key::{BearerToken, FromExtension, Key, KeyExtractor, Missing, Secret},
    respond::Preflight,
};

use crate::support::{ask, request};

fn once() -> FixedWindow {
    FixedWindow::new(Quota::per_day(1))
}

/// The statuses of these requests under a limit of one for each key.
async fn statuses<K>(keys: K, requests: impl IntoIterator<Item = Request<()>>) -> Vec<u16>
where
    K: KeyExtractor<Request<()>> + Clone,
{
    let layer = RateLimitLayer::new(keys, once());
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(ask(&layer, request).await.status().as_u16());
    }
    statuses
}

fn with(name: &'static str, values: &[&str]) -> Request<()> {
    let headers: Vec<_> = values.iter().map(|value| (name, *value)).collect();
    request(None, &headers)
}

#[tokio::test]
async fn a_header_is_a_key_and_requests_without_it_share_one() {
    let requests = || {
        [&["a"][..], &["b"], &["a"], &[], &[], &["a", "b"]].map(|values| with("x-api-key", values))
    };
    let keys = HeaderKey::new("x-api-key");
    assert_eq!(
        statuses(keys.clone(), requests()).await,
        [200, 200, 429, 200, 429, 429]
    );
    let strict = keys
        .clone()
        .if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    assert_eq!(
        statuses(strict, requests()).await,
        [200, 200, 429, 401, 401, 401]
    );
    let open = keys.if_missing(Missing::Skip);
    assert_eq!(
        statuses(open, requests()).await,
        [200, 200, 429, 200, 200, 200]
    );
}

#[tokio::test]
async fn a_token_is_a_key_whatever_the_case_of_its_scheme() {
    let requests = [
        "Bearer abc",
        "bearer abc",
        "Bearer  abc",
        "Bearer xyz",
        "Basic abc",
        "Bearer ",
    ]
    .map(|value| with("authorization", &[value]));
    assert_eq!(
        statuses(BearerToken::new(), requests).await,
        [200, 429, 429, 200, 200, 429]
    );
}

#[tokio::test]
async fn a_handle_finds_the_key_of_a_header() {
    let layer = RateLimitLayer::new(BearerToken::new(), once());
    ask(&layer, with("authorization", &["Bearer abc"])).await;
    let key = Secret::new(HeaderValue::from_static("Bearer abc"));
    assert!(layer.handle().peek(&key, 1).await.unwrap().is_denied());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct User(u32);

impl Key for User {}

#[tokio::test]
async fn an_extension_is_a_key() {
    let from = |user: Option<u32>| {
        let mut request = Request::new(());
        if let Some(user) = user {
            request.extensions_mut().insert(User(user));
        }
        request
    };
    let requests = || [Some(1), Some(2), Some(1), None, None].map(from);
    let users = FromExtension::<User>::new();
    assert_eq!(statuses(users, requests()).await, [200, 200, 429, 200, 429]);
    let known = users.if_missing(Missing::Skip);
    assert_eq!(statuses(known, requests()).await, [200, 200, 429, 200, 200]);
}

#[tokio::test]
async fn status_list_server_216_a_forgotten_address_is_no_500_and_no_way_around() {
    let requests = || {
        [
            request(None, &[]),
            request(None, &[]),
            request(Some("192.0.2.1"), &[]),
        ]
    };
    let clients = ClientIp::peer();
    assert_eq!(statuses(clients.clone(), requests()).await, [200, 429, 200]);
    let strict = clients.if_missing(Missing::Reject(StatusCode::FORBIDDEN));
    assert_eq!(statuses(strict, requests()).await, [403, 403, 200]);
}

#[tokio::test]
async fn a_client_on_each_path_is_a_tuple() {
    let path = |req: &Request<()>| req.uri().path().to_owned();
    let from = |peer, path: &str| {
        let mut request = request(Some(peer), &[]);
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let requests = [
        from("192.0.2.1", "/a"),
        from("192.0.2.1", "/b"),
        from("192.0.2.2", "/a"),
        from("192.0.2.1", "/a"),
    ];
    assert_eq!(
        statuses((ClientIp::peer(), path), requests).await,
        [200, 200, 200, 429]
    );
}

#[tokio::test]
async fn labrinth_874_preflights_use_up_nothing() {
    let preflight = || {
        let mut request = request(
            None,
            &[
                ("origin", "https://a.example"),
                ("access-control-request-method", "PUT"),
            ],
        );
        *request.method_mut() = http::Method::OPTIONS;
        request
    };
    let layer = RateLimitLayer::new(ClientIp::peer(), once()).skip(Preflight);
    for _ in 0..3 {
        assert_eq!(ask(&layer, preflight()).await.status(), 200);
    }
    assert_eq!(ask(&layer, Request::new(())).await.status(), 200);
    assert_eq!(ask(&layer, Request::new(())).await.status(), 429);
    // OPTIONS alone is no preflight, or it would be a way around.
    let mut options = Request::new(());
    *options.method_mut() = http::Method::OPTIONS;
    assert_eq!(ask(&layer, options).await.status(), 429);
}

#[test]
fn a_proxy_header_that_is_not_read_is_reported_through_every_wrapper() {
    let path = |req: &Request<()>| req.uri().path().to_owned();
    let forwarded = request(Some("192.0.2.1"), &[("forwarded", "for=198.51.100.7")]);
    let listed = request(Some("192.0.2.1"), &[("x-forwarded-for", "198.51.100.7")]);
    let direct = request(Some("192.0.2.1"), &[]);
    fn reports<K: KeyExtractor<Request<()>>>(keys: &K, request: &Request<()>) -> bool {
        keys.unread_proxy_header(request)
    }
    for proxied in [&forwarded, &listed] {
        assert!(reports(&ClientIp::peer(), proxied));
        assert!(reports(&(ClientIp::peer(), path), proxied));
        assert!(reports(&(path, path, ClientIp::peer()), proxied));
        assert!(!reports(&path, proxied));
        for read in [
            ClientIp::x_forwarded_for().hops(1),
            ClientIp::forwarded().hops(1),
            ClientIp::header("x-real-ip").hops(1),
        ] {
            assert!(!reports(&read, proxied));
        }
    }
    assert!(!reports(&ClientIp::peer(), &direct));
}
