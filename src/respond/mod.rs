//! Port: what is told to whoever sent a request.
//!
//! Three questions, each with a trait: how a refused request is answered ([`Respond`]), what a
//! response says about the limit ([`Tell`]), and what a request turns out to have cost once its
//! response is known ([`SettleUp`]).

mod auto;
mod grpc;
mod http;

pub use self::{
    auto::Auto,
    grpc::Grpc,
    http::{Headers, HeadersOnly, Preflight, ProblemJson},
};

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use ::http::HeaderValue;

use crate::decision::Decision;
use crate::error::RateLimited;
use crate::quota::Quota;

/// Responder requests that are turned away.
///
/// For HTTP, a closure from the request and the reason to a response is one. For everything else
/// there is [`AsError`], or an implementation of your own:
///
/// ```
/// use tower_throttle::{RateLimited, respond::Respond};
///
/// #[derive(Clone)]
/// struct SayBusy;
///
/// impl<E> Respond<String, String, E> for SayBusy {
///     fn deny(&self, request: &String, denied: RateLimited) -> Result<String, E> {
///         Ok(format!("BUSY {request}: {denied}"))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer a refused `{Req}` with a `{Res}`",
    label = "no answer for this service",
    note = "the default answers HTTP requests whose response body is `Default + 'static`",
    note = "for a service that is not HTTP add `.respond(AsError)`, and `impl From<RateLimited>` for the service's error",
    note = "a closure is `|req: &http::Request<B>, denied: &RateLimited| -> http::Response<B2>`, with the body types of the service it wraps"
)]
pub trait Respond<Req, Res, Err> {
    /// The answer to `request`, which does not reach the service.
    ///
    /// # Errors
    /// Where a refusal is an error of the service, as with [`AsError`].
    fn deny(&self, request: &Req, denied: RateLimited) -> Result<Res, Err>;

    /// The same, given the request itself, whose parts may be of use for the answer. What a layer
    /// calls.
    ///
    /// # Errors
    /// As of [`deny`](Self::deny).
    fn refuse(&self, request: Req, denied: RateLimited) -> Result<Res, Err> {
        self.deny(&request, denied)
    }

    /// Notes the decision in a request that goes on to the service, where it has a place for it.
    fn admit(&self, request: &mut Req, decision: &Decision) {
        let _ = (request, decision);
    }

    /// How long the sender of `request` will wait for the answer, where the request says so. One
    /// whose turn would come later than that is denied at once. Asked only about requests that have
    /// to wait.
    fn timeout(&self, request: &Req) -> Option<Duration> {
        let _ = request;
        None
    }
}

/// Says something about the limit in every response that the limit was asked about.
pub trait Tell<Res> {
    /// Whether it never says anything, so that nothing needs to be kept for it.
    const SILENT: bool = false;

    /// Writes into `response`.
    fn tell(&self, response: &mut Res, policies: &Policies, decision: &Decision);
}

/// Says what a request cost, seeing its response; closures `Fn(&Res) -> Settle` do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not settle the cost of a request by its `{Res}`",
    note = "a closure names the type of the response, as in `|res: &axum::response::Response| ..`, and returns `Settle`"
)]
pub trait SettleUp<Res> {
    /// Whether it always keeps what was taken, so that nothing needs to be kept for it.
    const ALWAYS_KEEPS: bool = false;

    /// What to do about the cost of the request that got `response`.
    fn settle(&self, response: &Res) -> Settle;
}

/// What to do about the cost of a request once its response is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settle {
    /// It stays as it was taken.
    Keep,
    /// It is given back: the request counts for nothing.
    Refund,
    /// The request cost this much in all. The difference is taken, even into debt, or given back.
    Charge(u64),
}

/// The default response. For HTTP: 429 with `Retry-After`, or its gRPC form to a gRPC request.
///
/// A request without a key gets the status and the text of its
/// [`Rejection`](crate::key::Rejection). The text is in the header `x-ratelimit-error`, and in the
/// body if that is a `String`, a `Vec<u8>`, or axum's (feature `axum`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Standard;

/// Responder with an error of the service, made by `From<RateLimited>`.
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

impl<Req, Res, Err: From<RateLimited>> Respond<Req, Res, Err> for AsError {
    fn deny(&self, _: &Req, denied: RateLimited) -> Result<Res, Err> {
        Err(denied.into())
    }
}

/// Responses stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl<Res> Tell<Res> for Silent {
    const SILENT: bool = true;

    fn tell(&self, _: &mut Res, _: &Policies, _: &Decision) {}
}

/// What was taken stays taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeepAll;

impl<Res> SettleUp<Res> for KeepAll {
    const ALWAYS_KEEPS: bool = true;

    fn settle(&self, _: &Res) -> Settle {
        Settle::Keep
    }
}

impl<Res, F: Fn(&Res) -> Settle> SettleUp<Res> for F {
    fn settle(&self, response: &Res) -> Settle {
        self(response)
    }
}

/// Says what a request cost, seeing what came of it, response or error.
///
/// Made of a [`SettleUp`], which does not see errors and keeps their cost ([`SettleByResponse`]), or of a
/// closure that sees both ([`SettleByResult`]).
pub trait SettleResult<Res, Err> {
    /// Whether it always keeps what was taken, so that nothing needs to be kept for it.
    const ALWAYS_KEEPS: bool = false;

    /// What to do about the cost of the request that ended in `result`.
    fn settle_for_result(&self, result: &Result<Res, Err>) -> Settle;
}

/// Settles by the response alone; made by `RateLimitLayer::settle`.
#[derive(Clone, Copy, Debug)]
pub struct SettleByResponse<F>(pub(crate) F);

impl<Res, Err, F: SettleUp<Res>> SettleResult<Res, Err> for SettleByResponse<F> {
    const ALWAYS_KEEPS: bool = F::ALWAYS_KEEPS;

    #[inline]
    fn settle_for_result(&self, result: &Result<Res, Err>) -> Settle {
        match result {
            Ok(response) => self.0.settle(response),
            Err(_) => Settle::Keep,
        }
    }
}

impl<Res, Err> SettleResult<Res, Err> for KeepAll {
    const ALWAYS_KEEPS: bool = true;

    fn settle_for_result(&self, _: &Result<Res, Err>) -> Settle {
        Settle::Keep
    }
}

/// Settles by a closure that sees errors too; made by `RateLimitLayer::settle_result`.
#[derive(Clone, Copy, Debug)]
pub struct SettleByResult<F>(pub(crate) F);

impl<Res, Err, F: Fn(&Result<Res, Err>) -> Settle> SettleResult<Res, Err> for SettleByResult<F> {
    #[inline]
    fn settle_for_result(&self, result: &Result<Res, Err>) -> Settle {
        (self.0)(result)
    }
}

/// The three answers of one layer: to the refused, about the limit, and about the cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responder<D = Standard, H = Silent, F = KeepAll> {
    pub(crate) deny: D,
    pub(crate) tell: H,
    pub(crate) settle: F,
}

impl<D, H, F> Responder<D, H, F> {
    pub(crate) fn with_deny<T>(self, deny: T) -> Responder<T, H, F> {
        let Self { tell, settle, .. } = self;
        Responder { deny, tell, settle }
    }

    pub(crate) fn with_tell<T>(self, tell: T) -> Responder<D, T, F> {
        let Self { deny, settle, .. } = self;
        Responder { deny, tell, settle }
    }

    pub(crate) fn with_settle<T>(self, settle: T) -> Responder<D, H, T> {
        let Self { deny, tell, .. } = self;
        Responder { deny, tell, settle }
    }
}

/// What a layer asks of its [`Responder`]. Not to be implemented: the three parts are.
pub trait ResponseHooks<Req, Res, Err>: sealed::Sealed {
    /// Whether something is to be said in responses.
    const WRITES_HEADERS: bool;
    /// Whether something is to be done when a response is there.
    const NEEDS_RESPONSE: bool;

    /// See [`Respond::refuse`].
    ///
    /// # Errors
    /// See [`Respond::deny`].
    fn refuse(&self, request: Req, denied: RateLimited) -> Result<Res, Err>;

    /// See [`Respond::admit`].
    fn admit(&self, request: &mut Req, decision: &Decision);

    /// See [`Respond::timeout`].
    fn timeout(&self, request: &Req) -> Option<Duration>;

    /// See [`Tell::tell`].
    fn tell(&self, response: &mut Res, policies: &Policies, decision: &Decision);

    /// See [`SettleResult::settle_for_result`].
    fn settle(&self, result: &Result<Res, Err>) -> Settle;
}

impl<Req, Res, Err, D, H, F> ResponseHooks<Req, Res, Err> for Responder<D, H, F>
where
    D: Respond<Req, Res, Err>,
    H: Tell<Res>,
    F: SettleResult<Res, Err>,
{
    const WRITES_HEADERS: bool = !H::SILENT;
    const NEEDS_RESPONSE: bool = !(H::SILENT && F::ALWAYS_KEEPS);

    #[inline]
    fn refuse(&self, request: Req, denied: RateLimited) -> Result<Res, Err> {
        self.deny.refuse(request, denied)
    }

    #[inline]
    fn admit(&self, request: &mut Req, decision: &Decision) {
        self.deny.admit(request, decision);
    }

    #[inline]
    fn timeout(&self, request: &Req) -> Option<Duration> {
        self.deny.timeout(request)
    }

    #[inline]
    fn tell(&self, response: &mut Res, policies: &Policies, decision: &Decision) {
        self.tell.tell(response, policies, decision);
    }

    #[inline]
    fn settle(&self, result: &Result<Res, Err>) -> Settle {
        self.settle.settle_for_result(result)
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody can name it: that is the seal")]
    pub trait Sealed {}

    impl<D, H, F> Sealed for super::Responder<D, H, F> {}
}

/// The limits of a layer as they are told to clients: a name and a quota each.
#[derive(Debug)]
pub struct Policies {
    list: Vec<Policy>,
    /// The list as a header, in the forms there are; each written by the first response that
    /// needs it.
    lines: [OnceLock<HeaderValue>; 2],
}

/// One limit as it is told to clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// Printable ASCII.
    pub name: Arc<str>,
    /// How much it allows.
    pub quota: Quota,
}

impl Policies {
    /// One policy a quota. A single one is called `name`; several are numbered from 1, `name-1`,
    /// `name-2`, in the order of [`Decision::policy`].
    pub fn new(name: &str, quotas: &[Quota]) -> Self {
        let several = quotas.len() > 1;
        let list = (1..).zip(quotas).map(|(number, quota)| Policy {
            name: if several {
                format!("{name}-{number}").into()
            } else {
                name.into()
            },
            quota: *quota,
        });
        Self {
            list: list.collect(),
            lines: [OnceLock::new(), OnceLock::new()],
        }
    }

    /// All of them, in the order of [`Decision::policy`].
    pub fn list(&self) -> &[Policy] {
        &self.list
    }

    /// The one that `decision` speaks of.
    pub fn of(&self, decision: &Decision) -> Option<&Policy> {
        self.list.get(decision.policy)
    }

    /// What `write` makes of the list; made once for each `form`, which is 0 or 1.
    pub(crate) fn line(
        &self,
        form: usize,
        write: impl FnOnce(&[Policy]) -> HeaderValue,
    ) -> HeaderValue {
        self.lines[form].get_or_init(|| write(&self.list)).clone()
    }
}
