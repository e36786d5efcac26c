//! Keys of HTTP requests.

use http::{Request, StatusCode};
use tower_throttle::{
    ClientIp, FixedWindow, HeaderKey, Quota, RateLimitLayer,
    key::{Extracted, FromExtension, Key, KeyExtractor, Missing},
    respond::Preflight,
};

use crate::support::{ask, request};

fn once() -> FixedWindow {
    FixedWindow::new(Quota::per_day(1))
}

/// Sends `requests` with a limit of one request per key. Returns the statuses.
async fn statuses<K>(keys: K, requests: impl IntoIterator<Item = Request<()>>) -> Vec<u16>
where
    K: KeyExtractor<Request<()>> + Clone + 'static,
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

/// Shows promise 52.
#[tokio::test]
async fn a_header_can_be_the_key_and_requests_without_it_share_a_limit() {
    let requests = || {
        [&["a"][..], &["b"], &["a"], &[], &[], &["a", "b"]].map(|values| with("x-api-key", values))
    };
    let keys = HeaderKey::new("x-api-key");
    let found = statuses(keys.clone(), requests()).await;
    assert_eq!(found, [200, 200, 429, 200, 429, 429]);
    let strict = keys
        .clone()
        .if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let found = statuses(strict, requests()).await;
    assert_eq!(found, [200, 200, 429, 401, 401, 401]);
    let open = keys.if_missing(Missing::Skip);
    let found = statuses(open, requests()).await;
    assert_eq!(found, [200, 200, 429, 200, 200, 200]);
}

/// Shows promise 52.
#[tokio::test]
async fn a_request_without_the_first_key_is_counted_by_the_second() {
    let keys = HeaderKey::new("x-api-key").or(ClientIp::peer());
    let from = |peer, values: &[&str]| {
        let headers: Vec<_> = values.iter().map(|value| ("x-api-key", *value)).collect();
        request(Some(peer), &headers)
    };
    let requests = [
        from("192.0.2.1", &["a"]),
        // The same key from another address.
        from("192.0.2.2", &["a"]),
        // No key: counted by address.
        from("192.0.2.1", &[]),
        from("192.0.2.1", &[]),
        // A header sent twice: counted by address, whose limit is used up.
        from("192.0.2.1", &["b", "c"]),
        from("192.0.2.3", &["b", "c"]),
        from("192.0.2.3", &["d", "e"]),
        // A key that looks like an address is not that address.
        from("192.0.2.1", &["192.0.2.4"]),
        from("192.0.2.4", &[]),
    ];
    let found = statuses(keys, requests).await;
    assert_eq!(found, [200, 429, 200, 429, 429, 200, 429, 200, 200]);
    // The scheme of a token in any spelling. Of three keys the first one that is there.
    let of_token = |token| request(None, &[("authorization", token)]);
    let requests = ["Bearer a", "BEARER a", "Basic a"].map(of_token);
    let found = statuses(HeaderKey::bearer(), requests).await;
    assert_eq!(found, [200, 429, 200]);
    let keys = HeaderKey::new("x-api-key").or(HeaderKey::new("x-user"));
    let of_both = |user| request(None, &[("x-api-key", "a"), ("x-user", user)]);
    let requests = [of_both("ann"), of_both("bob")];
    let found = statuses(keys.or(ClientIp::peer()), requests).await;
    assert_eq!(found, [200, 429]);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct User(u32);

impl Key for User {}

/// Shows promise 52.
#[tokio::test]
async fn an_extension_can_be_the_key() {
    let from = |user: Option<u32>| {
        let mut request = Request::new(());
        if let Some(user) = user {
            request.extensions_mut().insert(User(user));
        }
        request
    };
    let requests = || [Some(1), Some(2), Some(1), None, None].map(from);
    let users = FromExtension::<User>::new();
    assert_eq!(statuses(users, requests()).await, [200, 200, 429, 500, 500]);
    let shared = users.if_missing(Missing::Shared);
    let found = statuses(shared, requests()).await;
    assert_eq!(found, [200, 200, 429, 200, 429]);
    let known = users.if_missing(Missing::Skip);
    assert_eq!(statuses(known, requests()).await, [200, 200, 429, 200, 200]);
    let rejection = match users.extract(&Request::new(())) {
        Extracted::Reject(rejection) => rejection.to_string(),
        other => panic!("{other:?}"),
    };
    for remedy in [
        "keys::User`",
        "no layer around this limit",
        ".if_missing(Missing::Shared)",
    ] {
        assert!(rejection.contains(remedy), "{rejection}");
    }
}

/// What a client can send or leave out, with any extractor that reads it. Each form is sent four times with a
/// limit of one per key, so a form that alone is unlimited passes four times.
///
/// Shows promise 52.
#[tokio::test]
async fn no_client_becomes_unlimited_by_what_it_leaves_out() {
    let header = |req: &Request<()>| req.headers().get("x-api-key").cloned();
    let parsed = |req: &Request<()>| {
        let key = req.headers().get("x-api-key")?.to_str().ok()?;
        key.parse::<u32>().ok()
    };
    let requests = || {
        let headers: [&[(&str, &str)]; 5] = [
            &[],
            &[("x-api-key", ""), ("authorization", "")],
            &[
                ("x-api-key", "a"),
                ("x-api-key", "b"),
                ("authorization", "Basic a"),
            ],
            &[("forwarded", "for=unknown"), ("x-real-ip", "none")],
            &[("x-forwarded-for", ",,"), ("x-priority", "?")],
        ];
        let four_times = headers.into_iter().flat_map(|headers| [headers; 4]);
        four_times.map(|headers| request(Some("192.0.2.1"), headers))
    };
    macro_rules! check {
        ($($keys:expr),+ $(,)?) => {$({
            let statuses = statuses($keys, requests()).await;
            let passed = statuses.iter().filter(|status| **status == 200).count();
            // An empty key is a key, and so is each of several that a closure takes the first of.
            assert!(passed <= 3, "{}: {statuses:?}", stringify!($keys));
        })+};
    }
    check![
        HeaderKey::new("x-api-key"),
        HeaderKey::bearer(),
        FromExtension::<User>::new(),
        HeaderKey::new("x-api-key").or(HeaderKey::bearer()),
        HeaderKey::new("x-api-key").or(ClientIp::peer()),
        (HeaderKey::new("x-api-key"), HeaderKey::bearer()),
        ((HeaderKey::new("x-api-key"), ClientIp::peer()), parsed),
        header,
        parsed,
        (header, parsed),
        ClientIp::peer(),
        ClientIp::x_forwarded_for().hops(1),
        ClientIp::forwarded().trusting(["192.0.2.0/24"]),
        ClientIp::header("x-real-ip").trusting(["192.0.2.0/24"]),
    ];
}

#[tokio::test]
async fn labrinth_874_preflights_are_not_counted() {
    let preflight = || {
        let mut request = request(
            Some("192.0.2.1"),
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
    let get = || request(Some("192.0.2.1"), &[]);
    assert_eq!(ask(&layer, get()).await.status(), 200);
    assert_eq!(ask(&layer, get()).await.status(), 429);
    // OPTIONS alone is not a preflight, or clients could bypass the limit.
    let mut options = get();
    *options.method_mut() = http::Method::OPTIONS;
    assert_eq!(ask(&layer, options).await.status(), 429);
}

#[tokio::test]
async fn a_rejection_has_a_header_and_a_denial_has_none() {
    use tower_throttle::{ProblemJson, RateLimited};

    let nameless = || with("x-other", &["a"]);
    let keys = || HeaderKey::new("X-Api-Key").if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let text = "the header x-api-key is missing or repeated";

    let layer = RateLimitLayer::new(keys(), once());
    let response = ask(&layer, nameless()).await;
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["x-ratelimit-error"], text);
    assert_eq!(response.body(), "");

    let tokens = HeaderKey::bearer().if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    for value in ["Digest abc", "Bearer", "Bearer  "] {
        let layer = RateLimitLayer::new(tokens.clone(), once());
        let response = ask(&layer, with("authorization", &[value])).await;
        let error = &response.headers()["x-ratelimit-error"];
        assert_eq!(error, "the bearer token is missing", "{value}");
    }

    ask(&layer, with("x-api-key", &["a"])).await;
    let denied = ask(&layer, with("x-api-key", &["a"])).await;
    assert_eq!(denied.status(), 429);
    assert!(!denied.headers().contains_key("x-ratelimit-error"));

    let response = ask(&layer.clone().respond(ProblemJson), nameless()).await;
    assert_eq!(response.headers()["x-ratelimit-error"], text);
    assert!(response.body().contains(text));
    let closure = |_: &Request<()>, _: &RateLimited| http::Response::new("sorry".to_owned());
    let response = ask(&layer.respond(closure), nameless()).await;
    assert_eq!(response.headers()["x-ratelimit-error"], text);
    assert_eq!(response.body(), "sorry");
}
