//! The three answers of one layer, together.

use std::{any::Any, time::Duration};

use super::cost::CostHandle;
use super::policies::Policies;
use super::settle::Settle;
use super::watch::{Event, Watch};
use super::{Protocol, Respond, SettleResult, Standard, Tell};
use crate::decision::Decision;
use crate::error::RateLimited;

/// The three answers of one layer, to denied requests, about the limit, and about the cost; and who
/// watches its decisions.
#[derive(Clone, Debug, Default)]
pub struct Responder<D = Standard, H = (), F = (), W = ()> {
    deny: D,
    tell: H,
    settle: F,
    watch: W,
}

impl<D, H, F, W> Responder<D, H, F, W> {
    pub(crate) fn with_deny<T>(self, deny: T) -> Responder<T, H, F, W> {
        Responder {
            deny,
            tell: self.tell,
            settle: self.settle,
            watch: self.watch,
        }
    }

    pub(crate) fn with_tell<T>(self, tell: T) -> Responder<D, T, F, W> {
        Responder {
            deny: self.deny,
            tell,
            settle: self.settle,
            watch: self.watch,
        }
    }

    pub(crate) fn map_settle<T>(self, settle: impl FnOnce(F) -> T) -> Responder<D, H, T, W> {
        Responder {
            deny: self.deny,
            tell: self.tell,
            settle: settle(self.settle),
            watch: self.watch,
        }
    }

    /// Adds one that watches.
    pub(crate) fn with_watch<T>(self, watch: T) -> Responder<D, H, F, (W, T)> {
        Responder {
            deny: self.deny,
            tell: self.tell,
            settle: self.settle,
            watch: (self.watch, watch),
        }
    }
}

/// What a layer asks of its [`Responder`]: implement the traits of its parts.
pub(crate) trait ResponseHooks<Req, K, Res, Err> {
    /// Whether responses state the limit.
    const WRITES_HEADERS: bool;
    /// Whether there is something to do when a response is there.
    const NEEDS_RESPONSE: bool;

    /// See [`Respond::deny`].
    ///
    /// # Errors
    /// See [`Respond::deny`].
    fn deny(&self, request: Req, denied: RateLimited) -> Result<Res, Err>;

    /// See [`Protocol::share`].
    fn share(&self, request: &mut Req, decision: &Decision);

    /// See [`Protocol::share_cost`].
    fn share_cost(&self, request: &mut Req, cost: CostHandle);

    /// See [`Protocol::timeout`].
    fn timeout(&self, request: &Req) -> Option<Duration>;

    /// See [`Tell::tell`]. `rules` are those of the limit that the decision is about.
    fn tell(
        &self,
        rules: Option<&dyn Any>,
        response: &mut Res,
        policies: &Policies,
        decision: &Decision,
    );

    /// See [`SettleResult::settle`].
    fn settle(&self, rules: Option<&dyn Any>, result: Result<&Res, &Err>) -> Settle;

    /// See [`Watch::saw`].
    fn saw(&self, key: &K, event: Event<'_>);
}

impl<Req, K, Res, Err, D, H, F, W> ResponseHooks<Req, K, Res, Err> for Responder<D, H, F, W>
where
    D: Respond<Req, Res, Err>,
    H: Tell<Res>,
    F: SettleResult<Res, Err>,
    W: Watch<K>,
{
    const WRITES_HEADERS: bool = !H::SILENT;
    const NEEDS_RESPONSE: bool = !(H::SILENT && F::ALWAYS_KEEPS);

    fn deny(&self, request: Req, denied: RateLimited) -> Result<Res, Err> {
        self.deny.deny(request, denied)
    }

    fn share(&self, request: &mut Req, decision: &Decision) {
        D::Protocol::share(request, decision);
    }

    fn share_cost(&self, request: &mut Req, cost: CostHandle) {
        D::Protocol::share_cost(request, cost);
    }

    fn timeout(&self, request: &Req) -> Option<Duration> {
        D::Protocol::timeout(request)
    }

    fn tell(
        &self,
        rules: Option<&dyn Any>,
        response: &mut Res,
        policies: &Policies,
        decision: &Decision,
    ) {
        self.tell.tell(rules, response, policies, decision);
    }

    fn settle(&self, rules: Option<&dyn Any>, result: Result<&Res, &Err>) -> Settle {
        match result {
            Ok(response) if !F::ALWAYS_KEEPS && D::Protocol::is_denial(response) => {
                self.settle.settle_denial(result)
            }
            _ => self.settle.settle(rules, result),
        }
    }

    #[inline]
    fn saw(&self, key: &K, event: Event<'_>) {
        self.watch.saw(key, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::respond::{Headers, SettleWhen};

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
        let settle = |()| (|_: &http::Response<()>| Settle::Keep).settle_when(&mut (), ());
        assert_eq!(needs(silent.clone()), (false, false));
        assert_eq!(needs(silent.clone().map_settle(settle)), (false, true));
        let told = silent.with_tell(Headers::Draft11);
        assert_eq!(needs(told.clone()), (true, true));
        assert_eq!(needs(told.map_settle(settle)), (true, true));
    }
}
