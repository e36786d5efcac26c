//! The three answers of one layer, together.

use std::time::Duration;

use super::policies::Policies;
use super::settle::{KeepAll, Settle, SettleResult};
use super::{Respond, Silent, Standard, Tell};
use crate::decision::Decision;
use crate::error::RateLimited;

/// The three answers of one layer: to denied requests, about the limit, and about the cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responder<D = Standard, H = Silent, F = KeepAll> {
    deny: D,
    tell: H,
    settle: F,
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

/// What a layer asks of its [`Responder`]. Sealed: implement the traits of its parts.
pub trait ResponseHooks<Req, K, Res, Err>: sealed::Sealed {
    /// Whether responses state the limit.
    const WRITES_HEADERS: bool;
    /// Whether there is something to do when a response is there.
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

    /// See [`SettleResult::capture`].
    fn capture(&mut self, request: &Req);

    /// See [`SettleResult::settle_for_result`].
    fn settle(&self, key: &K, result: &Result<Res, Err>) -> Settle;
}

impl<Req, K, Res, Err, D, H, F> ResponseHooks<Req, K, Res, Err> for Responder<D, H, F>
where
    D: Respond<Req, Res, Err>,
    H: Tell<Res>,
    F: SettleResult<Req, K, Res, Err>,
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
    fn capture(&mut self, request: &Req) {
        self.settle.capture(request);
    }

    #[inline]
    fn settle(&self, key: &K, result: &Result<Res, Err>) -> Settle {
        match result {
            Ok(response) if !F::ALWAYS_KEEPS && self.deny.is_denial(response) => {
                self.settle.settle_denial(key, result)
            }
            _ => self.settle.settle_for_result(key, result),
        }
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "a seal must not be nameable")]
    pub trait Sealed {}

    impl<D, H, F> Sealed for super::Responder<D, H, F> {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::respond::{Headers, SettleByResult};

    /// Whether headers are written, and whether anything waits for the response.
    fn needs<D, H, F>(_: Responder<D, H, F>) -> (bool, bool)
    where
        Responder<D, H, F>: ResponseHooks<http::Request<()>, (), http::Response<()>, ()>,
    {
        (
            <Responder<D, H, F>>::WRITES_HEADERS,
            <Responder<D, H, F>>::NEEDS_RESPONSE,
        )
    }

    #[test]
    fn a_response_is_needed_only_for_headers_or_to_settle() {
        let silent = Responder::<Standard>::default();
        let settle = SettleByResult(|_: &Result<_, ()>| Settle::Keep);
        assert_eq!(needs(silent), (false, false));
        assert_eq!(needs(silent.with_settle(settle)), (false, true));
        let told = silent.with_tell(Headers::standard());
        assert_eq!(needs(told), (true, true));
        assert_eq!(needs(told.with_settle(settle)), (true, true));
    }
}
