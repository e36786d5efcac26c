//! What clients are told by the limits of a file, and what counts.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};

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
pub struct PolicyDeny;

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
}

/// The headers of `headers = "..."`, or none. The response of a limit that denied the request states that
/// limit only.
#[derive(Clone, Copy, Debug)]
pub struct PolicyHeaders(Option<Headers>);

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
/// | of a limit that denied the request | is given back | is given back |
/// | a status in `failure` | counts | counts |
/// | any other below 400 | is given back as a success | counts |
/// | any other | is given back | counts |
/// | none: an error of the service, or the client left | counts | counts |
#[derive(Clone, Debug)]
pub struct PolicySettle(Option<Arc<[u16]>>);

impl<Req, K, B, Err> SettleResult<Req, K, Response<B>, Err> for PolicySettle {
    fn settle_for_result(&self, _: &K, result: &Result<Response<B>, Err>) -> Settle {
        let Ok(response) = result else {
            return Settle::Keep;
        };
        if response.extensions().get::<RateLimited>().is_some() {
            return Settle::Refund;
        }
        let status = response.status();
        match &self.0 {
            None => Settle::Keep,
            Some(failure) if failure.contains(&status.as_u16()) => Settle::Keep,
            Some(_) if status.as_u16() < 400 => Settle::Forgive,
            Some(_) => Settle::Refund,
        }
    }
}
