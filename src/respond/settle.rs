//! What a request turns out to have cost.

use std::{any::Any, fmt};

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

/// The cost stays taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeepAll;

/// Decides what a request cost, given all that is known of it. What a layer calls.
///
/// Implemented by what `RateLimitLayer` makes of a closure: [`SettleByResponse`],
/// [`SettleByResult`] and [`SettleWith`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not settle the cost of a `{Req}` by its `{Res}`",
    note = "`.settle(..)` takes a closure `|res: &axum::response::Response| ..` that returns `Settle`"
)]
pub trait SettleResult<Req, K, Res, Err> {
    /// Whether it always keeps what was taken, so that nothing needs to be kept for it.
    const ALWAYS_KEEPS: bool = false;

    /// Keeps what it needs of `request`, which goes on to the service. Called on a clone made for
    /// this request.
    fn capture(&mut self, request: &Req) {
        let _ = request;
    }

    /// What to do about the cost of the request of `key` that ended in `result`.
    fn settle_for_result(&self, key: &K, result: &Result<Res, Err>) -> Settle;

    /// The same, given what the limit itself says about it.
    #[doc(hidden)]
    fn settle_by(&self, rules: Option<&dyn Any>, key: &K, result: &Result<Res, Err>) -> Settle {
        let _ = rules;
        self.settle_for_result(key, result)
    }

    /// The same for a request that a limit inside this one has denied, so that the service has not seen
    /// it. It is neither a success nor a failure.
    fn settle_denial(&self, key: &K, result: &Result<Res, Err>) -> Settle {
        let _ = (key, result);
        Settle::Refund
    }
}

impl<Req, K, Res, Err> SettleResult<Req, K, Res, Err> for KeepAll {
    const ALWAYS_KEEPS: bool = true;

    fn settle_for_result(&self, _: &K, _: &Result<Res, Err>) -> Settle {
        Settle::Keep
    }
}

/// Settles by the response alone and keeps the cost of errors; made by `RateLimitLayer::settle`.
#[derive(Clone, Copy, Debug)]
pub struct SettleByResponse<F>(pub(crate) F);

impl<Req, K, Res, Err, F> SettleResult<Req, K, Res, Err> for SettleByResponse<F>
where
    F: Fn(&Res) -> Settle,
{
    fn settle_for_result(&self, _: &K, result: &Result<Res, Err>) -> Settle {
        match result {
            Ok(response) => (self.0)(response),
            Err(_) => Settle::Keep,
        }
    }
}

/// Settles by a closure that sees errors too; made by `RateLimitLayer::settle_result`.
#[derive(Clone, Copy, Debug)]
pub struct SettleByResult<F>(pub(crate) F);

impl<Req, K, Res, Err, F> SettleResult<Req, K, Res, Err> for SettleByResult<F>
where
    F: Fn(&Result<Res, Err>) -> Settle,
{
    fn settle_for_result(&self, _: &K, result: &Result<Res, Err>) -> Settle {
        (self.0)(result)
    }

    fn settle_denial(&self, _: &K, result: &Result<Res, Err>) -> Settle {
        match (self.0)(result) {
            Settle::Forgive => Settle::Refund,
            other => other,
        }
    }
}

/// Settles by the key, the response, and what was kept of the request; made by
/// `RateLimitLayer::settle_with`.
pub struct SettleWith<C, F, T> {
    capture: C,
    settle: F,
    /// `None` until the request goes on to the service.
    captured: Option<T>,
}

impl<C, F, T> SettleWith<C, F, T> {
    pub(crate) const fn new(capture: C, settle: F) -> Self {
        Self {
            capture,
            settle,
            captured: None,
        }
    }
}

impl<Req, K, Res, Err, C, F, T> SettleResult<Req, K, Res, Err> for SettleWith<C, F, T>
where
    C: Fn(&Req) -> T,
    F: Fn(&K, &T, &Res) -> Settle,
{
    fn capture(&mut self, request: &Req) {
        self.captured = Some((self.capture)(request));
    }

    fn settle_for_result(&self, key: &K, result: &Result<Res, Err>) -> Settle {
        match (result, &self.captured) {
            (Ok(response), Some(captured)) => (self.settle)(key, captured, response),
            _ => Settle::Keep,
        }
    }
}

/// Manual impl: `T` belongs to one request and need not be `Clone`.
impl<C: Clone, F: Clone, T> Clone for SettleWith<C, F, T> {
    fn clone(&self) -> Self {
        Self::new(self.capture.clone(), self.settle.clone())
    }
}

/// Manual impl: closures are not `Debug`.
impl<C, F, T> fmt::Debug for SettleWith<C, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettleWith").finish_non_exhaustive()
    }
}
