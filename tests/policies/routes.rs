//! A pattern of a file matches the paths that a route with the same text serves. A live router of axum
//! says which those are.

use std::convert::Infallible;

use axum::{Router, body::Body, extract::Request, response::Response, routing::any};
use test_support::random::Random;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    key::PeerAddr,
    policy::{Environment, PolicyLayer},
};

use crate::support::file;

const NAMES: [&str; 4] = ["{k}", "{l}", "{m}", "{n}"];

/// Routes and paths at random.
struct Routes(Random);

impl Routes {
    fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// The text of a route: texts, names, names with a prefix, a rest, empty segments.
    fn pattern(&mut self) -> String {
        let mut pattern = String::new();
        let segments = 1 + self.below(4);
        for (at, name) in NAMES.into_iter().take(segments).enumerate() {
            pattern.push('/');
            match self.below(if at + 1 == segments { 10 } else { 8 }) {
                0..=2 => pattern += self.of(&["a", "ab", "login", "{{a}}", ""]),
                3..=6 => pattern += name,
                7 => pattern.extend(["a", name]),
                _ => pattern += self.of(&["{*rest}", "{*rest}", "a{*rest}"]),
            }
        }
        pattern
    }

    fn segment(&mut self) -> &'static str {
        self.of(&[
            "", "", "a", "ab", "b", "login", "LOGIN", "{a}", ".", "..", "%2F", "%6Cogin", "a%", ";",
        ])
    }

    /// A path that the route serves, or nearly.
    fn path(&mut self, pattern: &str) -> String {
        let mut segments = Vec::new();
        for segment in pattern.split('/').skip(1) {
            match segment.split_once('{') {
                Some((prefix, "*rest}")) => {
                    segments.push(prefix.to_owned() + self.segment());
                    for _ in 0..self.below(3) {
                        segments.push(self.segment().to_owned());
                    }
                }
                Some((prefix, name)) if !name.starts_with('{') => {
                    segments.push(prefix.to_owned() + self.segment());
                }
                _ => segments.push(segment.replace("{{", "{").replace("}}", "}")),
            }
        }
        let at = self.below(segments.len() + 1);
        match self.below(8) {
            0 => segments.insert(at, String::new()),
            1 => segments.insert(at, self.segment().to_owned()),
            2 => drop(segments.pop()),
            3 => segments.push(String::new()),
            _ => {}
        }
        format!("/{}", segments.join("/"))
    }
}

fn request(path: &str) -> Request {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().unwrap();
    let peer = PeerAddr(([192, 0, 2, 1], 4711).into());
    request.extensions_mut().insert(peer);
    request
}

/// Denies all clients what `pattern` matches.
fn deny(pattern: &str) -> PolicyLayer {
    let text =
        "[lists]\nall = { cidrs = [\"0.0.0.0/1\", \"128.0.0.0/1\"] }\n[[deny]]\nlist = \"all\"\n";
    let text = format!("{text}match = {{ path = \"{pattern}\" }}\n");
    PolicyLayer::new(file(&text), Environment::new()).unwrap()
}

/// The service that serves every path, behind the limit.
fn behind_deny(
    pattern: &str,
) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone {
    let all = service_fn(async |_: Request| Ok(Response::new(Body::empty())));
    deny(pattern)
        .layer(all)
        .map_response(|response: Response<_>| response.map(Body::new))
}

async fn status(
    service: impl Service<Request, Response = Response, Error = Infallible>,
    path: &str,
) -> u16 {
    service
        .oneshot(request(path))
        .await
        .unwrap()
        .status()
        .as_u16()
}

/// Shows promise 304.
#[tokio::test]
async fn a_pattern_matches_the_paths_that_axum_serves_and_no_other() {
    let (mut random, mut asked) = (Routes(Random::new(7)), [0; 2]);
    for _ in 0..1_500 {
        let pattern = random.pattern();
        let service = behind_deny(&pattern);
        let router = Router::new().route(&pattern, any(async || ()));
        for _ in 0..30 {
            let path = random.path(&pattern);
            let is_served = status(router.clone(), &path).await == 200;
            let is_denied = status(service.clone(), &path).await == 403;
            assert_eq!(is_served, is_denied, "{pattern} {path}");
            asked[usize::from(is_served)] += 1;
        }
    }
    assert!(asked.iter().all(|paths| *paths > 8_000), "{asked:?}");
}

/// A nested router of axum removes a `/` too many from a path with an empty segment behind its prefix.
///
/// Shows promise 304.
#[cfg(feature = "axum")]
#[tokio::test]
async fn a_nested_router_serves_no_path_that_the_limit_inside_it_misses() {
    let (mut random, mut denied, mut served) = (Routes(Random::new(5)), 0, Vec::new());
    for _ in 0..1_000 {
        let pattern = random.pattern();
        let inner = Router::new().route(&pattern, any(async || ()));
        let inner = inner.layer(deny(&pattern));
        let prefix = random.of(&["/p", "/p/", "/p/q", "/{p}", "/p/{q}", "/p-{q}"]);
        // axum serves another route: it joins the two with one `/`.
        if prefix.ends_with('/') && pattern.starts_with("//") {
            continue;
        }
        let router = match random.below(3) {
            0 => Router::new().nest(prefix, inner),
            1 => Router::new().nest_service(prefix, inner),
            _ => Router::new().nest("/r", Router::new().nest(prefix, inner)),
        };
        for _ in 0..30 {
            let tail = random.path(&pattern);
            let path = random.path(prefix).trim_end_matches('/').to_owned() + &tail;
            for path in [format!("/r{path}"), path] {
                match status(router.clone(), &path).await {
                    403 => denied += 1,
                    200 => served.push(format!("{prefix} {pattern} {path}")),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(served, [""; 0]);
    assert!(denied > 5_000, "{denied}");
}
