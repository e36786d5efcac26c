//! The three answers of one layer, together.

use super::settle::Settle;
use super::watch::Watch;
use super::{OwnRules, Protocol, Respond, SettleResult, Standard, Tell};

/// The three answers of one layer, to denied requests, about the limit, and about the cost; and who
/// watches its decisions.
#[derive(Clone, Debug, Default)]
pub struct Responder<D = Standard, H = (), F = (), W = ()> {
    pub(crate) deny: D,
    pub(crate) tell: H,
    pub(crate) settle: F,
    pub(crate) watch: W,
}

/// What a layer asks of its [`Responder`]: implement the traits of its parts.
pub(crate) trait ResponseHooks<Req, K, Res, Err> {
    type Deny: Respond<Req, Res, Err, Protocol: Protocol<Req, Res>>;
    type Tell: Tell<Res>;
    type Settle: SettleResult<Res, Err>;
    type Watch: Watch<K>;

    /// Whether responses state the limit.
    const WRITES_HEADERS: bool = !Self::Tell::SILENT;
    /// Whether there is something to do when a response is there.
    const NEEDS_RESPONSE: bool = !(Self::Tell::SILENT && Self::Settle::ALWAYS_KEEPS);

    fn parts(&self) -> &Responder<Self::Deny, Self::Tell, Self::Settle, Self::Watch>;

    /// See [`SettleResult::settle`]. A limit that learns the cost `at_end` needs no closure for denials inside.
    fn settle(&self, rules: OwnRules<'_>, at_end: bool, result: Result<&Res, &Err>) -> Settle {
        let settle = &self.parts().settle;
        let is_denial = <Self::Deny as Respond<Req, Res, Err>>::Protocol::is_denial;
        let settles = at_end || !Self::Settle::ALWAYS_KEEPS;
        match result {
            Ok(response) if settles && is_denial(response) => settle.settle_denial(result),
            _ => settle.settle(rules, result),
        }
    }
}

impl<Req, K, Res, Err, D, H, F, W> ResponseHooks<Req, K, Res, Err> for Responder<D, H, F, W>
where
    D: Respond<Req, Res, Err, Protocol: Protocol<Req, Res>>,
    H: Tell<Res>,
    F: SettleResult<Res, Err>,
    W: Watch<K>,
{
    type Deny = D;
    type Tell = H;
    type Settle = F;
    type Watch = W;

    fn parts(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::respond::{Headers, SettleWhen};

    /// Whether headers are written, and whether anything waits for the response.
    fn needs<H, F>(tell: H, settle: F) -> (bool, bool)
    where
        H: Tell<http::Response<()>>,
        F: SettleResult<http::Response<()>, ()>,
    {
        fn of<R: ResponseHooks<http::Request<()>, (), http::Response<()>, ()>>(
            _: R,
        ) -> (bool, bool) {
            (R::WRITES_HEADERS, R::NEEDS_RESPONSE)
        }
        of(Responder {
            deny: Standard,
            tell,
            settle,
            watch: (),
        })
    }

    #[test]
    fn a_response_is_needed_only_for_headers_or_to_settle() {
        let settle = (|_: &http::Response<()>| Settle::Keep).settle_when(&mut (), ());
        assert_eq!(needs((), ()), (false, false));
        assert_eq!(needs((), settle), (false, true));
        assert_eq!(needs(Headers::Draft11, ()), (true, true));
        assert_eq!(needs(Headers::Draft11, settle), (true, true));
    }
}
