//! What a request turns out to have cost.

use std::any::Any;

/// What to do about the cost of a request once its response is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settle {
    /// It stays as it was taken.
    Keep,
    /// It is given back: the request counts for nothing. What time has returned since the cost was
    /// taken is not given back again.
    Refund,
    /// It is given back as by [`Refund`](Self::Refund), because the attempt succeeded. A
    /// [`Lockout`](crate::Lockout) with
    /// [`clear_on_success`](crate::Lockout::clear_on_success) also forgets the failures before it.
    Forgive,
    /// The request cost this much in all. The difference is taken, even into debt, or given back.
    Charge(u64),
}

/// For [`settle`](crate::RateLimitLayer::settle): the cost is said while the request is served, by its
/// [`CostHandle`](super::CostHandle).
#[derive(Clone, Copy, Debug, Default)]
pub struct AtEnd;

/// What [`settle`](crate::RateLimitLayer::settle) takes: a closure from the response to a [`Settle`], a closure from the
/// result to one, or [`AtEnd`]. `M` tells them apart and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not settle the cost of a request",
    note = "`.settle(..)` takes a closure `|res: &axum::response::Response| ..` or `|result: Result<&Res, &Err>| ..` that returns `Settle`",
    note = "`AtEnd` is for a rate limit; set it before `.and(..)`"
)]
pub trait SettleWhen<M, G, F> {
    /// What settles in place of `F`.
    type Settle;

    /// Whether the cost is said while the request is served.
    const SAYS_LATER: bool = false;

    /// What settles a request that `gate` has admitted, in place of `before`.
    fn settle_when(self, gate: &mut G, before: F) -> Self::Settle;
}

impl<T, Res, G, F> SettleWhen<fn(&Res), G, F> for T
where
    T: Fn(&Res) -> Settle,
{
    type Settle = SettleByResponse<T>;

    fn settle_when(self, _: &mut G, _: F) -> SettleByResponse<T> {
        SettleByResponse(self)
    }
}

impl<T, Res, Err, G, F> SettleWhen<fn(&Res, &Err), G, F> for T
where
    T: Fn(Result<&Res, &Err>) -> Settle,
{
    type Settle = SettleByResult<T>;

    fn settle_when(self, _: &mut G, _: F) -> SettleByResult<T> {
        SettleByResult(self)
    }
}

/// Decides what a request cost, given its result. What a layer calls.
pub(crate) trait SettleResult<Res, Err> {
    /// Whether it always keeps what was taken, so that nothing needs to be kept for it.
    const ALWAYS_KEEPS: bool = false;

    /// What to do about the cost of a request that ended in `result`, given what the limit itself says
    /// about its responses.
    fn settle(&self, rules: Option<&dyn Any>, result: Result<&Res, &Err>) -> Settle;

    /// The same for a request that a limit inside this one has denied, so that the service has not seen
    /// it. It is neither a success nor a failure.
    fn settle_denial(&self, _: Result<&Res, &Err>) -> Settle {
        Settle::Refund
    }
}

/// Every cost stays.
impl<Res, Err> SettleResult<Res, Err> for () {
    const ALWAYS_KEEPS: bool = true;

    fn settle(&self, _: Option<&dyn Any>, _: Result<&Res, &Err>) -> Settle {
        Settle::Keep
    }
}

/// Settles by the response alone, and keeps the cost of errors.
#[derive(Clone, Copy, Debug)]
pub struct SettleByResponse<F>(F);

impl<Res, Err, F: Fn(&Res) -> Settle> SettleResult<Res, Err> for SettleByResponse<F> {
    fn settle(&self, _: Option<&dyn Any>, result: Result<&Res, &Err>) -> Settle {
        result.map_or(Settle::Keep, &self.0)
    }
}

/// Settles by the response or the error, also denials of limits inside this one.
#[derive(Clone, Copy, Debug)]
pub struct SettleByResult<F>(F);

impl<Res, Err, F: Fn(Result<&Res, &Err>) -> Settle> SettleResult<Res, Err> for SettleByResult<F> {
    fn settle(&self, _: Option<&dyn Any>, result: Result<&Res, &Err>) -> Settle {
        (self.0)(result)
    }

    fn settle_denial(&self, result: Result<&Res, &Err>) -> Settle {
        match (self.0)(result) {
            Settle::Forgive => Settle::Refund,
            other => other,
        }
    }
}
