//! The host of a request as its key.

use http::{Request, StatusCode, header, uri::Authority};

use crate::error::Rejection;
use crate::key::{Extracted, KeyExtractor};

/// The host and port that a request is sent to, from its URI, or else from its `Host` header.
///
/// A request without a host is rejected. The channel of tonic adds the host later: use
/// [`Global`](crate::Global) for a client of one server.
///
/// ```
/// use http::Request;
/// use tower_throttle::{client::Host, key::{Extracted, KeyExtractor}};
///
/// let request = Request::get("https://API.example/items").body(()).unwrap();
/// assert_eq!(Host.extract(&request), Extracted::Key("api.example".parse().unwrap()));
/// assert!(matches!(Host.extract(&Request::new(())), Extracted::Reject(_)));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl<B> KeyExtractor<Request<B>> for Host {
    type Key = Authority;

    fn extract(&self, request: &Request<B>) -> Extracted<Authority> {
        let in_header = || {
            let host = request.headers().get(header::HOST)?;
            Authority::try_from(host.as_bytes()).ok()
        };
        match request.uri().authority().cloned().or_else(in_header) {
            Some(host) => Extracted::Key(host),
            None => Extracted::Reject(Rejection::new(
                StatusCode::BAD_REQUEST,
                "the request has no host; use `Global` for a client of one server",
            )),
        }
    }
}
