//! Which requests may be sent again.

use http::Request;

/// Copies the requests that may be sent again after a denial.
///
/// A closure `Fn(&Req) -> Option<Req>` is one: for requests whose body is not `Clone`, or to choose them
/// by path.
///
/// ```
/// use http::Request;
/// use tower_throttle::client::Replay;
///
/// // Searches are safe to repeat, although they are `POST`.
/// let searches = |request: &Request<String>| (request.uri().path() == "/search").then(|| request.clone());
/// let search = Request::post("/search").body("shoes".to_owned()).unwrap();
/// assert_eq!(searches.copy(&search).unwrap().body(), "shoes");
/// assert!(searches.copy(&Request::post("/buy").body(String::new()).unwrap()).is_none());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot copy a `{Req}`",
    note = "`Idempotent` needs a request whose body is `Clone`; else give a closure `|request: &Req| -> Option<Req>`"
)]
pub trait Replay<Req> {
    /// A copy of `request`, or `None` if it must not be sent twice.
    fn copy(&self, request: &Req) -> Option<Req>;
}

impl<Req, F: Fn(&Req) -> Option<Req>> Replay<Req> for F {
    fn copy(&self, request: &Req) -> Option<Req> {
        self(request)
    }
}

/// No request is sent again. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRetry;

impl<Req> Replay<Req> for NoRetry {
    fn copy(&self, _: &Req) -> Option<Req> {
        None
    }
}

/// Sends requests with an idempotent method again: `GET`, `HEAD`, `OPTIONS`, `TRACE`, `PUT`, `DELETE`.
///
/// ```
/// use http::Request;
/// use tower_throttle::client::{Idempotent, Replay};
///
/// assert!(Idempotent.copy(&Request::get("/").body(()).unwrap()).is_some());
/// assert!(Idempotent.copy(&Request::post("/").body(()).unwrap()).is_none());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Idempotent;

impl<B: Clone> Replay<Request<B>> for Idempotent {
    fn copy(&self, request: &Request<B>) -> Option<Request<B>> {
        request.method().is_idempotent().then(|| request.clone())
    }
}
