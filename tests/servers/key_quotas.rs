//! Quotas per key in a store that two machines share: what holds in every store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm};
use tower_throttle::store::{Backend, Op, Plan, QuotaPerKey, Quotas};
use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, StoreError,
    TokenBucket,
};

/// The quotas of some keys. Shared by the machines, which ask it as they would ask a database.
#[derive(Clone, Default)]
struct Plans(Arc<Mutex<HashMap<u64, Quota>>>);

impl Plans {
    fn set(&self, key: u64, quota: Quota) {
        self.0.lock().expect("no panic").insert(key, quota);
    }

    fn of(&self, key: u64) -> Option<Quota> {
        self.0.lock().expect("no panic").get(&key).copied()
    }
}

/// A machine of this crate, with the plans that it knows.
struct Real(Quotas<u64>, Plans);

impl Real {
    /// It looks plans up in `plans`, and knows one as long as it has not learned another.
    fn new(limit: impl QuotaPerKey<u64>, plans: &Plans) -> Self {
        let (plans, learned) = (plans.clone(), Plans::default());
        let known = learned.clone();
        let plan = move |key: &u64| {
            let Some(quota) = known.of(*key).or_else(|| plans.of(*key)) else {
                return Plan::Default;
            };
            known.set(*key, quota);
            Plan::Quota(quota)
        };
        Self(Quotas::new(limit, plan), learned)
    }
}

impl Real {
    async fn apply(&self, key: u64, op: Op) -> Result<Decision, StoreError> {
        self.0.apply(&key, op).await
    }

    /// Waits until it decides on `key` under its new quota.
    fn learn(&self, key: u64, quota: Quota) {
        self.1.set(key, quota);
    }
}

/// A client is moved from 10 to `other` and back, while one of two machines learns of it late.
async fn what_was_used_stays_used(
    machines: &[Real; 2],
    plans: &Plans,
    key: u64,
    (first, other): (Quota, Quota),
) -> Result<(), String> {
    let [one, two] = machines;
    plans.set(key, first);
    let takes = async |machine: &Real, times, expected: bool, when: &str| {
        for _ in 0..times {
            let decision = machine.apply(key, Op::Take(1)).await;
            if decision.expect("a decision").is_admitted() != expected {
                return Err(format!("{when}: expected {expected}"));
            }
        }
        Ok(())
    };
    takes(one, 3, true, "first").await?;
    takes(two, 1, true, "first").await?;
    plans.set(key, other);
    one.learn(key, other);
    takes(one, 5, true, "under the other quota").await?;
    takes(two, 1, true, "where it is not known yet").await?;
    takes(two, 1, false, "where it is not known yet").await?;
    plans.set(key, first);
    one.learn(key, first);
    takes(one, 1, false, "back under the first quota").await?;
    plans.set(key, other);
    two.learn(key, other);
    let decision = two.apply(key, Op::Take(1)).await.expect("a decision");
    if decision.limit != other.capacity() {
        return Err("a denial under the first quota was repeated".into());
    }
    // A reset under one quota ends the denial under another one.
    one.learn(key, other);
    let _ = one.apply(key, Op::Reset).await;
    plans.set(key, first);
    one.learn(key, first);
    takes(one, 10, true, "after a reset").await?;
    takes(one, 1, false, "after a reset").await
}

/// Aligned windows begin at this offset. If it is the time of the day in UTC, the day of the calendar has hours left.
pub(crate) fn algorithms(offset: Duration) -> Vec<AnyAlgorithm> {
    // The default of these tests.
    let quota = Quota::per_hour(3);
    #[cfg(feature = "calendar")]
    let zone = if offset < Duration::from_secs(20 * 3_600) {
        "Europe/Berlin"
    } else {
        "America/New_York"
    };
    vec![
        AnyAlgorithm::new(FixedWindow::new(quota).offset(offset)),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingWindow::new(quota).offset(offset)),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        #[cfg(feature = "calendar")]
        AnyAlgorithm::new(
            tower_throttle::CalendarWindow::new(Quota::per_day(3), zone).expect("a zone"),
        ),
        #[cfg(feature = "governor")]
        AnyAlgorithm::new(tower_throttle::Gcra::new(quota)),
    ]
}

/// `limit` makes a limiter of one machine under a name.
pub(crate) async fn a_key_is_counted_once_under_all_its_quotas<P>(
    limit: impl Fn(&str, AnyAlgorithm) -> P,
) where
    P: QuotaPerKey<u64>,
{
    // Aligned windows begin now, so that none ends during the test.
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let offset = Duration::from_secs(now.as_secs() % 86_400);
    for (at, algorithm) in algorithms(offset).into_iter().enumerate() {
        let name = format!("right.{at}");
        let plans = Plans::default();
        let machines = [(); 2].map(|()| Real::new(limit(&name, algorithm.clone()), &plans));
        let of_hours = [Quota::per_hour(10), Quota::per_hour(20), Quota::per_day(20)];
        let of_days = [Quota::per_day(10), Quota::per_day(20), Quota::per_month(20)];
        let has_days = algorithm.quota().period() == Quota::per_day(1).period();
        let [first, others @ ..] = if has_days { of_days } else { of_hours };
        // The period of `Gcra` is that of a unit.
        let are_counted = |other: &Quota| other.period() == first.period() && !is_gcra(&algorithm);
        for (key, other) in (1..).zip(others.into_iter().filter(are_counted)) {
            let checked = what_was_used_stays_used(&machines, &plans, key, (first, other)).await;
            assert_eq!(checked, Ok(()), "{algorithm:?}, {other}");
        }
        // Each key by itself. The last one has no plan.
        plans.set(7, Quota::per(5, first.period()));
        for (key, most) in [(7, 5), (8, 3)] {
            let mut admitted = 0;
            for request in 0..8 {
                let decided = machines[request % 2].apply(key, Op::Take(1)).await;
                admitted += u64::from(decided.expect("a decision").is_admitted());
            }
            assert_eq!(admitted, most, "{algorithm:?}");
        }
    }
}

/// Its value is of one rate.
#[cfg(feature = "governor")]
pub(crate) fn is_gcra(algorithm: &AnyAlgorithm) -> bool {
    algorithm.get::<tower_throttle::Gcra>().is_some()
}

#[cfg(not(feature = "governor"))]
pub(crate) const fn is_gcra(_: &AnyAlgorithm) -> bool {
    false
}
