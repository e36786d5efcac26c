//! What clients are told by the limits of a file, and what counts.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};

use super::body::PolicyBody;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::respond::{Headers, Policies, Respond, Responder, Settle, SettleResult, Standard, Tell};

/// What a limit asks of its responses.
pub(super) type PolicyResponder = Responder<PolicyDeny, PolicyHeaders, PolicySettle>;

pub(super) fn responder(headers: Option<Headers>, failure: &[u16]) -> PolicyResponder {
    Responder::<Standard>::default()
        .with_deny(PolicyDeny)
        .with_tell(PolicyHeaders::of(headers))
        .with_settle(PolicySettle((!failure.is_empty()).then(|| failure.into())))
}

/// The [`Standard`] answer to denied requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyDeny;

impl<A, B: Default + 'static, Err> Respond<Request<A>, Response<PolicyBody<B>>, Err>
    for PolicyDeny
{
    fn deny(
        &self,
        request: &Request<A>,
        denied: RateLimited,
    ) -> Result<Response<PolicyBody<B>>, Err> {
        let response: Result<Response<B>, Err> = Standard.deny(request, denied);
        Ok(response?.map(PolicyBody::plain))
    }

    fn refuse(
        &self,
        request: Request<A>,
        denied: RateLimited,
    ) -> Result<Response<PolicyBody<B>>, Err> {
        let response: Result<Response<B>, Err> = Standard.refuse(request, denied);
        Ok(response?.map(PolicyBody::plain))
    }

    fn timeout(&self, request: &Request<A>) -> Option<Duration> {
        Respond::<Request<A>, Response<B>, Err>::timeout(&Standard, request)
    }

    fn is_denial(&self, response: &Response<PolicyBody<B>>) -> bool {
        Respond::<Request<A>, _, Err>::is_denial(&Standard, response)
    }
}

/// The headers of `headers = "..."`, or none. The response of a limit that denied the request states that
/// limit only.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyHeaders(Option<Headers>);

impl PolicyHeaders {
    pub(super) const fn of(headers: Option<Headers>) -> Self {
        Self(headers)
    }
}

impl<B> Tell<Response<B>> for PolicyHeaders {
    fn tell(&self, response: &mut Response<B>, policies: &Policies, decision: &Decision) {
        let Some(headers) = &self.0 else { return };
        // Another limit has denied the request, so the cost that this one has taken is given back.
        let is_given_back =
            !decision.is_denied() && response.extensions().get::<RateLimited>().is_some();
        if !is_given_back {
            headers.tell(response, policies, decision);
        }
    }
}

/// Gives back what a request took that another limit denied, or that did not fail if only failures
/// count.
///
/// | the response | with `failure` | without |
/// |---|---|---|
/// | of a limit that denied or rejected the request | is given back | is given back |
/// | a status in `failure` | counts | counts |
/// | any other below 400 | is given back as a success | counts |
/// | any other | is given back | counts |
/// | of gRPC, with its status in trailers | is given back | counts |
/// | none: an error of the service, or the client left | counts | counts |
///
/// The status of a gRPC response whose header `grpc-status` is not 0 is the HTTP status of that code: 401
/// of `unauthenticated`, 403 of `permission_denied`. A status in trailers is not known when the cost is
/// settled.
#[derive(Clone, Debug)]
pub(super) struct PolicySettle(Option<Arc<[u16]>>);

impl<Req, K, B, Err> SettleResult<Req, K, Response<B>, Err> for PolicySettle {
    fn settle_for_result(&self, _: &K, result: &Result<Response<B>, Err>) -> Settle {
        let Ok(response) = result else {
            return Settle::Keep;
        };
        let Some(failure) = &self.0 else {
            return Settle::Keep;
        };
        let status = match response.status().as_u16() {
            status @ 400.. => Some(status),
            status => status_of_grpc(status, response.headers()),
        };
        match status.unwrap_or_else(|| response.status().as_u16()) {
            status if failure.contains(&status) => Settle::Keep,
            400.. => Settle::Refund,
            // Not yet a success: the trailers may hold a failure.
            _ if status.is_none() => Settle::Refund,
            _ => Settle::Forgive,
        }
    }
}

/// The HTTP status of a gRPC response, or `status` if there is no gRPC. `None` if it is in trailers.
fn status_of_grpc(status: u16, headers: &HeaderMap) -> Option<u16> {
    let is_grpc = || {
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
    };
    match headers.get("grpc-status").map(HeaderValue::as_bytes) {
        None if is_grpc() => None,
        None | Some(b"0") => Some(status),
        Some(b"1") => Some(499),
        Some(b"3" | b"9" | b"11") => Some(400),
        Some(b"4") => Some(504),
        Some(b"5") => Some(404),
        Some(b"6" | b"10") => Some(409),
        Some(b"7") => Some(403),
        Some(b"8") => Some(429),
        Some(b"12") => Some(501),
        Some(b"14") => Some(503),
        Some(b"16") => Some(401),
        Some(_) => Some(500),
    }
}
