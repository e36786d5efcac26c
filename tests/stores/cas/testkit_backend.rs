//! The check of backends finds every backend with one mistake.

use tower_throttle::algorithm::Algorithm;
use tower_throttle::store::cas::{Cas, MemoryStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::testkit::check_backend;
use tower_throttle::{FixedWindow, LeakyBucket, Local, Quota, SlidingLog, SlidingWindow};

#[derive(Clone, Copy, Debug)]
enum Mistake {
    PeekTakes,
    DenialCharges,
    RefundsTwice,
    RefundsNothing,
    IgnoresReset,
    ChargesNothing,
    SharesKeys,
    ZeroCosts,
    StatesNoLimit,
}

/// A table with one mistake.
struct Mistaken(Local<FixedWindow>, Mistake);

fn window() -> FixedWindow {
    FixedWindow::new(Quota::per_day(10)).anchored()
}

impl Backend<str> for Mistaken {
    type Future = <Local<FixedWindow> as Backend<str>>::Future;

    fn apply(&self, key: &str, op: Op) -> Self::Future {
        let table = &self.0;
        let key = match self.1 {
            Mistake::SharesKeys => "all",
            _ => key,
        };
        match (self.1, op) {
            (Mistake::PeekTakes, Op::Peek(cost)) => table.apply(key, Op::Take(cost)),
            (Mistake::DenialCharges, Op::Take(cost)) => {
                if cost > table.check(key, 0).remaining() {
                    drop(table.apply(key, Op::Charge(cost)));
                }
                table.apply(key, op)
            }
            (Mistake::RefundsTwice, Op::Refund(..)) => {
                drop(table.apply(key, op));
                table.apply(key, op)
            }
            (Mistake::RefundsNothing, Op::Cancel(..))
            | (Mistake::IgnoresReset, Op::Reset)
            | (Mistake::ChargesNothing, Op::Charge(_)) => table.apply(key, Op::Peek(0)),
            (Mistake::ZeroCosts, Op::Take(0)) => table.apply(key, Op::Take(1)),
            _ => table.apply(key, op),
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![window().quota()]
    }

    fn limits(&self) -> usize {
        match self.1 {
            Mistake::StatesNoLimit => 0,
            _ => 1,
        }
    }
}

/// Shows promise 370.
#[tokio::test(start_paused = true)]
async fn the_check_of_a_backend_finds_every_planted_mistake() {
    let day = Quota::per_day(10);
    assert_eq!(check_backend(&Local::new(window()), "a", "b").await, Ok(()));
    assert_eq!(
        check_backend(&Local::new(SlidingLog::new(day)), "a", "b").await,
        Ok(())
    );
    let meter = LeakyBucket::new(day);
    assert_eq!(check_backend(&Local::new(meter), "a", "b").await, Ok(()));
    let cas = Cas::new(MemoryStore::new(), "api", SlidingWindow::new(day));
    assert_eq!(check_backend::<str, _>(&cas, "a", "b").await, Ok(()));
    for mistake in [
        Mistake::PeekTakes,
        Mistake::DenialCharges,
        Mistake::RefundsTwice,
        Mistake::RefundsNothing,
        Mistake::IgnoresReset,
        Mistake::ChargesNothing,
        Mistake::SharesKeys,
        Mistake::ZeroCosts,
        Mistake::StatesNoLimit,
    ] {
        let backend = Mistaken(Local::new(window()), mistake);
        let checked = check_backend(&backend, "a", "b").await;
        assert!(checked.is_err(), "{mistake:?} is not found");
    }
}
