//! The laws by name, and all of them at once.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::backend::check_backend;
use super::law::Law;
use super::random::Random;
use super::subject::{Promise, Subject};
use super::{laws, trace};
use crate::algorithm::Algorithm;
use crate::clock::{Clock, ManualClock};
use crate::quota::Quota;
use crate::store::local::Local;

impl<A: Algorithm> Subject<A> {
    /// Checks one law in one random trace.
    ///
    /// # Errors
    /// If the algorithm breaks the law: how, and the operations that led there, of which none can be left out.
    pub fn check(&self, law: Law, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed);
        let steps = trace::random(self, law, &mut random);
        let fault = |steps: &[_]| laws::fault(self, law, steps, random.clone());
        let Some((steps, fault)) = trace::shortened(steps, fault) else {
            return Ok(());
        };
        let mut text = format!("{law:?}: {}: {fault}", self.name);
        trace::run(self, &steps, |step| {
            text += "\n  ";
            text += &step.to_string();
        });
        Err(text + &format!("\n  of {:?}, seed {seed}", self.algorithm))
    }
}

/// A random quota and burst: 1 per day to 1e9 per second, including periods that the limit does not divide.
///
/// ```
/// use tower_throttle::testkit::random_quota;
///
/// assert_eq!(random_quota(7), random_quota(7));
/// ```
pub fn random_quota(seed: u64) -> Quota {
    let mut random = Random::new(seed);
    let limit = 1 + random.log_uniform(10);
    let period = match random.below(5) {
        0 => 1_000_000_000,
        1 => 86_400_000_000_000,
        2 => *random.pick(&[7, 100, 7_000_013]),
        3 => *random.pick(&[333_333_333, 1_000_000_001]),
        _ => 1 + random.log_uniform(40),
    };
    let burst = 1 + random.below(3 * limit);
    Quota::per(limit, Duration::from_nanos(period)).burst(burst)
}

/// Checks an algorithm against all laws and its promise, and that a [`Local`] table decides by it, in random traces with
/// random quotas.
///
/// `make` returns the algorithm for a quota, and what it promises. The algorithm takes of the quota what it
/// has a use for, and its own [`quota`](crate::algorithm::Algorithm::quota) counts. Its decisions must not be longer than ten years.
///
/// ```
/// use tower_throttle::testkit::{Promise, check_algorithm};
/// use tower_throttle::{FixedWindow, Quota, TokenBucket};
///
/// fn window(quota: Quota) -> (FixedWindow, Promise) {
///     (FixedWindow::new(Quota::per(quota.limit(), quota.period())), Promise::Windows)
/// }
/// assert_eq!(check_algorithm(window), Ok(()));
///
/// // It admits twice its limit around the end of a window, which no bucket does.
/// let fault = check_algorithm(|quota| (window(quota).0, Promise::Bucket)).unwrap_err();
/// assert!(fault.contains("Promise"), "{fault}");
/// ```
///
/// # Errors
/// If it breaks a law: which one, how, and the operations that led there, of which none can be left out.
///
/// # Panics
/// If a table refuses the settings of the algorithm.
pub fn check_algorithm<A: Algorithm>(make: impl Fn(Quota) -> (A, Promise)) -> Result<(), String> {
    let check = |quota: Quota, law: Law, seed: u64| {
        let (algorithm, promise) = make(quota);
        let subject = Subject::new("algorithm", algorithm, promise);
        subject.check(law, seed)
    };
    for law in Law::ALL {
        if law == Law::Rounding {
            for (limit, period) in [
                (1, 60_000_000),
                (3, 1_000_000),
                (10, 3_600_000),
                (7, 7_000_013),
            ] {
                let quota = Quota::per(limit, Duration::from_nanos(period));
                check(quota.burst(limit + 2), law, 0)?;
            }
            continue;
        }
        // Every interval between two admissions is summed up.
        let is_long = matches!(law, Law::Promise | Law::Refunds);
        for seed in 0..if is_long { 100 } else { 1_000 } {
            check(random_quota(seed), law, seed)?;
        }
    }
    (0..100).try_for_each(|seed| {
        let algorithm = make(random_quota(seed)).0;
        let checked = in_table(&algorithm, seed);
        checked.map_err(|fault| format!("in a table, {algorithm:?}, seed {seed}: {fault}"))
    })
}

/// Checks that a table decides by the algorithm.
fn in_table<A: Algorithm>(algorithm: &A, seed: u64) -> Result<(), String> {
    let clock = ManualClock::new();
    let table = Local::new(algorithm.clone()).with_clock(clock.clone());
    let pass = async |span| {
        clock.advance(span);
        Some(clock.now())
    };
    let checking = pin!(check_backend(&table, algorithm, ["a", "b"], pass, seed));
    match checking.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(checked) => checked,
        Poll::Pending => Err("it does not decide at once".to_owned()),
    }
}
