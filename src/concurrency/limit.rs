//! What a layer can be given as its limit.

use std::time::Duration;

use super::adaptive::Adaptive;
use super::key_limits::KeySettings;
use super::permits::{Permits, checked_limit};
use super::source::InProcess;
use crate::error::{ConfigError, expect_valid};

/// A limit on concurrency: a number, an [`Adaptive`] algorithm, [`PerKey`], or the number of a fleet,
/// `fleet::FleetLimit` (feature `cas`). Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit on concurrency",
    label = "give a `u32`, or an algorithm such as `Gradient2::new()`"
)]
pub trait IntoLimit: sealed::Sealed {
    /// Where the permits are.
    type Source;

    /// The permits of a layer, where they are, and whether denied requests are told that the server is
    /// overloaded.
    fn into_limit(self) -> (Permits, Self::Source, bool);
}

impl IntoLimit for u32 {
    type Source = InProcess;

    #[track_caller]
    fn into_limit(self) -> (Permits, InProcess, bool) {
        let limit = expect_valid(checked_limit(self));
        (Permits::new(limit), InProcess, false)
    }
}

impl<A: Adaptive> IntoLimit for A {
    type Source = InProcess;

    fn into_limit(self) -> (Permits, InProcess, bool) {
        PerKey::new(self).into_limit()
    }
}

/// A limit per key that follows latency, with a bound on how many keys have one.
///
/// A key whose limit is not kept any more begins anew, with the limit that the algorithm
/// [starts](super::Gradient2::start_at) with. A key is kept from its first request on, until there was none for
/// the time to [`forget`](Self::forget) it, or until others displace it. About 64 keys compete: those
/// whose limit has never changed are displaced first, those with requests in flight last, and of these
/// the one that was used least recently. A kept key takes up about 5 KB.
///
/// The keys must be few and known, such as the names of backends. Clients must not choose them, as by
/// the `Host` header: they could displace what was learned, and begin anew with each name.
///
/// A window of a key has at least 10 samples, so the limit of a key with few requests changes rarely.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::concurrency::{ConcurrencyLimitLayer, Gradient2, PerKey};
///
/// let limits = PerKey::new(Gradient2::new().start_at(10))
///     .capacity(200)
///     .forget(Duration::from_secs(3_600));
/// let layer = ConcurrencyLimitLayer::new(|backend: &String| backend.clone(), limits);
/// assert_eq!(layer.handle().limit_of("search"), 10);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing until it is given to a layer"]
pub struct PerKey<A> {
    algorithm: A,
    settings: KeySettings,
}

/// The most limits that are kept: 2^24.
const MAX_KEYS: usize = 1 << 24;

impl<A: Adaptive> PerKey<A> {
    /// Keeps the limits of up to 1,024 keys, for 10 minutes without a request.
    pub fn new(algorithm: A) -> Self {
        Self {
            algorithm,
            settings: KeySettings::default(),
        }
    }

    /// How many limits are kept at most.
    ///
    /// # Panics
    /// If it is not from 1 to 16,777,216.
    #[track_caller]
    pub fn capacity(mut self, keys: usize) -> Self {
        if keys == 0 || keys > MAX_KEYS {
            let allowed = "a number of keys from 1 to 16777216";
            expect_valid(Err::<(), _>(ConfigError::out_of_range(
                "capacity", keys, allowed,
            )));
        }
        self.settings.capacity = keys;
        self
    }

    /// How long the limit of a key is kept without a request.
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    pub fn forget(mut self, forget: Duration) -> Self {
        if forget.is_zero() {
            let allowed = "a time above 0";
            expect_valid(Err::<(), _>(ConfigError::out_of_range(
                "forget", "0s", allowed,
            )));
        }
        self.settings.forget = forget;
        self
    }
}

impl<A: Adaptive> IntoLimit for PerKey<A> {
    type Source = InProcess;

    fn into_limit(self) -> (Permits, InProcess, bool) {
        let permits = Permits::adaptive_per_key(self.algorithm, self.settings);
        (permits, InProcess, true)
    }
}

pub(super) mod sealed {
    use super::{Adaptive, PerKey};

    #[expect(unnameable_types, reason = "a seal must not be nameable")]
    pub trait Sealed {}

    impl Sealed for u32 {}
    impl<A: Adaptive> Sealed for A {}
    impl<A: Adaptive> Sealed for PerKey<A> {}
}
