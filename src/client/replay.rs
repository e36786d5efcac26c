//! Which requests may be sent again.

use http::Request;

/// Copies the requests that may be sent again after a denial.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot copy a `{Req}`",
    note = "`Idempotent` needs a request whose body is `Clone`; else give a closure `|request: &Req| -> Option<Req>`"
)]
pub(crate) trait Replay<Req> {
    /// A copy of `request`, or `None` if it must not be sent twice.
    fn copy(&self, request: &Req) -> Option<Req>;
}

impl<Req, F: Fn(&Req) -> Option<Req>> Replay<Req> for F {
    fn copy(&self, request: &Req) -> Option<Req> {
        self(request)
    }
}

/// No request is sent again.
impl<Req> Replay<Req> for () {
    fn copy(&self, _: &Req) -> Option<Req> {
        None
    }
}

/// Sends requests with an idempotent method again: `GET`, `HEAD`, `OPTIONS`, `TRACE`, `PUT`, `DELETE`. For
/// [`PacerLayer::retry`](super::PacerLayer::retry).
#[derive(Clone, Copy, Debug, Default)]
pub struct Idempotent;

impl<B: Clone> Replay<Request<B>> for Idempotent {
    fn copy(&self, request: &Request<B>) -> Option<Request<B>> {
        request.method().is_idempotent().then(|| request.clone())
    }
}
