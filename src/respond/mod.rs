//! What clients are told.
//!
//! How a denied request is answered ([`Respond`]), what a response says about the limit ([`Headers`]), and what a request
//! has cost in the end ([`Settle`]).

mod cost;
mod grpc;
mod http;
mod jitter;
mod policies;
mod protocol;
mod responder;
mod settle;
mod watch;

pub use self::{
    cost::CostHandle,
    grpc::Grpc,
    http::{Headers, Preflight, ProblemJson},
    protocol::{Http, Opaque},
    responder::Responder,
    settle::{AtEnd, Settle, SettleByResponse, SettleByResult, SettleWhen},
};
pub(crate) use self::{
    cost::CostMeter,
    grpc::is_grpc,
    jitter::spread,
    policies::{Policies, Policy},
    protocol::Protocol,
    responder::ResponseHooks,
    settle::SettleResult,
    watch::{Event, Watch},
};

use std::any::Any;

use crate::decision::Decision;
use crate::error::RateLimited;

/// What a limit itself says about its responses, as one of a policy file does.
pub(crate) type OwnRules<'a> = Option<&'a dyn Any>;

/// Answers requests that are denied.
///
/// For HTTP, a closure from the request and the reason to a response is one. For everything else
/// there is [`AsError`], or an implementation of your own:
///
/// ```
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer, RateLimited, respond::{Opaque, Respond}};
///
/// #[derive(Clone)]
/// struct SayBusy;
///
/// impl<E> Respond<String, String, E> for SayBusy {
///     type Protocol = Opaque;
///
///     fn deny(&self, request: String, denied: RateLimited) -> Result<String, E> {
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
    label = "for a service that is not HTTP add `.respond(AsError)`; an HTTP response needs a body that is `Default`",
    note = "`AsError` needs an error with `From<RateLimited>`, such as `tower::BoxError`",
    note = "hyper's `Incoming` is not `Default`: put `tower_http::map_response_body::MapResponseBodyLayer::new(axum::body::Body::new)` between the limit and the service, or add `.respond(..)` with a closure",
    note = "a closure is `|req: &http::Request<B>, denied: &RateLimited| -> http::Response<B2>`, with the body types of the service that it wraps"
)]
pub trait Respond<Req, Res, Err> {
    /// What is known of such requests and responses: [`Http`], or [`Opaque`] for everything else.
    type Protocol;

    /// The answer to `request`, which does not reach the service. Its parts can be reused.
    ///
    /// # Errors
    /// If a denial is an error of the service, as with [`AsError`].
    fn deny(&self, request: Req, denied: RateLimited) -> Result<Res, Err>;
}

/// States the limit in every response to a request that the limit decided about.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot state a limit in a `{Res}`",
    note = "`.headers(..)` needs a service whose responses are `http::Response`"
)]
pub(crate) trait Tell<Res> {
    /// Whether it never writes anything, so that nothing needs to be kept for it.
    const SILENT: bool = false;

    /// Writes into `response`, given what the limit itself says about its responses.
    fn tell(
        &self,
        rules: OwnRules<'_>,
        response: &mut Res,
        policies: &Policies,
        decision: &Decision,
    );
}

/// The default answer. For HTTP: 429 with `Retry-After` and no body, or a gRPC status to a gRPC request. No cache stores
/// it. The body is the service's own type, which has to be `Default`: those of axum, tonic and http-body-util are.
///
/// A request is gRPC if its specification says so: it is a `POST` with the content type `application/grpc`
/// and `te: trailers`, or with that of gRPC-Web. So one layer serves an application that speaks both, and a
/// client cannot turn a 429 into a 200 that a cache would store. Behind a proxy that removes `te`, which
/// gRPC requires, use [`Grpc`].
///
/// A request without a key gets the status of its [`Rejection`](crate::key::Rejection), and its text in the header
/// `x-ratelimit-error`. A request that cannot be decided on, because a store is down, gets 503. The body is empty.
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
///     AsError.deny("any request", limited);
/// assert!(answer.unwrap_err().is::<RateLimited>());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

impl<Req, Res, Err: DenialError> Respond<Req, Res, Err> for AsError {
    type Protocol = Opaque;

    fn deny(&self, _: Req, denied: RateLimited) -> Result<Res, Err> {
        Err(Err::from_denial(denied))
    }
}

/// An error that a denial can become: every type with `From<RateLimited>`.
#[diagnostic::on_unimplemented(
    message = "`AsError` cannot make a `{Self}`: turn it into a `BoxError` by `.map_err(tower::BoxError::from)` on the service",
    label = "the error of this service has no `From<RateLimited>`",
    note = "in a `ServiceBuilder`, add `tower::util::MapErrLayer::new(tower::BoxError::from)` after the limit",
    note = "for an error of your own, `impl From<RateLimited>` does as well"
)]
pub(crate) trait DenialError: Sized {
    /// The error for a denied request.
    fn from_denial(denied: RateLimited) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<RateLimited>> DenialError for E {
    fn from_denial(denied: RateLimited) -> Self {
        denied.into()
    }
}

/// States nothing.
impl<Res> Tell<Res> for () {
    const SILENT: bool = true;

    fn tell(&self, _: OwnRules<'_>, _: &mut Res, _: &Policies, _: &Decision) {}
}

#[cfg(test)]
mod tests;
