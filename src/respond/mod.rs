//! Port: what clients are told.
//!
//! Three traits: how a denied request is answered ([`Respond`]), what a response says about the
//! limit ([`Tell`]), and what a request turns out to have cost once its response is known
//! ([`SettleUp`]).

mod auto;
mod grpc;
mod http;
mod policies;
mod responder;
mod settle;

pub use self::{
    auto::Auto,
    grpc::Grpc,
    http::{Headers, HeadersOnly, Preflight, ProblemJson},
    policies::{Policies, Policy},
    responder::{Responder, ResponseHooks},
    settle::{
        KeepAll, Settle, SettleByResponse, SettleByResult, SettleResult, SettleUp, SettleWith,
    },
};

use std::time::Duration;

use crate::decision::Decision;
use crate::error::RateLimited;

/// Answers requests that are denied.
///
/// For HTTP, a closure from the request and the reason to a response is one. For everything else
/// there is [`AsError`], or an implementation of your own:
///
/// ```
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer, RateLimited, respond::Respond};
///
/// #[derive(Clone)]
/// struct SayBusy;
///
/// impl<E> Respond<String, String, E> for SayBusy {
///     fn deny(&self, request: &String, denied: RateLimited) -> Result<String, E> {
///         Ok(format!("BUSY {request}: {denied}"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let echo = service_fn(async |request: String| Ok::<_, Infallible>(request));
/// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1))).respond(SayBusy);
/// let service = layer.layer(echo);
/// assert_eq!(service.clone().oneshot("a".into()).await.unwrap(), "a");
/// assert!(service.oneshot("b".into()).await.unwrap().starts_with("BUSY b: rate limit exceeded"));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer a denied `{Req}` with a `{Res}`",
    label = "no answer for this service",
    note = "for a service that is not HTTP add `.respond(AsError)`, and `impl From<RateLimited>` for the service's error",
    note = "the default answers HTTP requests if their response body is `Default + 'static`",
    note = "a closure is `|req: &http::Request<B>, denied: &RateLimited| -> http::Response<B2>`, with the body types of the service that it wraps"
)]
pub trait Respond<Req, Res, Err> {
    /// The answer to `request`, which does not reach the service.
    ///
    /// # Errors
    /// If a denial is an error of the service, as with [`AsError`].
    fn deny(&self, request: &Req, denied: RateLimited) -> Result<Res, Err>;

    /// The same, given the request itself, whose parts can be reused for the answer. What a layer
    /// calls.
    ///
    /// # Errors
    /// See [`deny`](Self::deny).
    fn refuse(&self, request: Req, denied: RateLimited) -> Result<Res, Err> {
        self.deny(&request, denied)
    }

    /// Stores the decision in a request that goes on to the service, if it has a place for it.
    fn admit(&self, request: &mut Req, decision: &Decision) {
        let _ = (request, decision);
    }

    /// How long the client of `request` will wait for the answer, if the request says so.
    ///
    /// A request whose turn would come later is denied at once. Called only for requests that have
    /// to wait.
    fn timeout(&self, request: &Req) -> Option<Duration> {
        let _ = request;
        None
    }

    /// Whether `response` is the denial of a limit inside this one, by any [`Respond`] that stores its
    /// [`RateLimited`] in the extensions. It is then [settled](Settle) by that and not by its status.
    fn is_denial(&self, response: &Res) -> bool {
        let _ = response;
        false
    }
}

/// States the limit in every response to a request that the limit decided about.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot state a limit in a `{Res}`",
    note = "`.headers(..)` needs a service whose responses are `http::Response`"
)]
pub trait Tell<Res> {
    /// Whether it never writes anything, so that nothing needs to be kept for it.
    const SILENT: bool = false;

    /// Writes into `response`.
    fn tell(&self, response: &mut Res, policies: &Policies, decision: &Decision);
}

/// The default answer. For HTTP: 429 with `Retry-After`, or a gRPC status to a [gRPC request](Auto). No
/// cache stores it.
///
/// A request without a key gets the status and the text of its
/// [`Rejection`](crate::key::Rejection). The text is in the header `x-ratelimit-error`, and in the
/// body if that is a `String`, a `Vec<u8>`, or axum's (feature `axum`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Standard;

/// Answers with an error of the service, made by `From<RateLimited>`.
///
/// ```
/// use std::convert::Infallible;
/// use tower_throttle::{AsError, RateLimited, key::Rejection, respond::Respond};
///
/// let limited = RateLimited::from(Rejection::from(http::StatusCode::FORBIDDEN));
/// let answer: Result<Infallible, Box<dyn std::error::Error + Send + Sync>> =
///     AsError.deny(&"any request", limited);
/// assert!(answer.unwrap_err().is::<RateLimited>());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

impl<Req, Res, Err: DenialError> Respond<Req, Res, Err> for AsError {
    fn deny(&self, _: &Req, denied: RateLimited) -> Result<Res, Err> {
        Err(Err::from_denial(denied))
    }
}

/// An error that a denial can become: every type with `From<RateLimited>`.
#[diagnostic::on_unimplemented(
    message = "`AsError` cannot make a `{Self}`: write `impl From<RateLimited>` for it",
    label = "the error of this service has no `From<RateLimited>`",
    note = "if the error is of another crate, put `tower::util::MapErrLayer::new(tower::BoxError::from)` between the limit and the service: `BoxError` has it"
)]
pub trait DenialError: Sized {
    /// The error for a denied request.
    fn from_denial(denied: RateLimited) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<RateLimited>> DenialError for E {
    fn from_denial(denied: RateLimited) -> Self {
        denied.into()
    }
}

/// Responses stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl<Res> Tell<Res> for Silent {
    const SILENT: bool = true;

    fn tell(&self, _: &mut Res, _: &Policies, _: &Decision) {}
}

#[cfg(test)]
mod tests;
