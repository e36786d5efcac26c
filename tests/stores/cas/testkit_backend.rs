//! The check of backends finds every backend with one mistake.

use tower_throttle::algorithm::Algorithm;
use tower_throttle::clock::Clock;
use tower_throttle::store::{Backend, Op, Receipt};
use tower_throttle::testkit::check_backend;
use tower_throttle::{FixedWindow, Local, ManualClock, Quota};

#[derive(Clone, Copy, Debug)]
enum Mistake {
    PeekTakes,
    DenialCharges,
    RefundsTwice,
    RefundsNothing,
    RefundsWhatHasExpired,
    IgnoresReset,
    ChargesNothing,
    SharesKeys,
    ZeroCosts,
    StatesNoLimit,
    BooksTurns,
}

/// A table with one mistake.
struct Mistaken(Local<FixedWindow, ManualClock>, Mistake);

fn window() -> FixedWindow {
    FixedWindow::new(Quota::per_minute(10))
}

impl Backend<str> for Mistaken {
    type Future = <Local<FixedWindow, ManualClock> as Backend<str>>::Future;

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
            (Mistake::RefundsWhatHasExpired, Op::Refund(cost, _)) => {
                table.apply(key, Op::Refund(cost, Receipt::NOW))
            }
            (Mistake::BooksTurns, Op::Reserve { cost, .. }) => table.apply(key, Op::Charge(cost)),
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

/// What the check finds in some traces.
async fn found(mistake: Option<Mistake>) -> Option<String> {
    for seed in 0..20 {
        let clock = ManualClock::new();
        let table = Local::new(window()).with_clock(clock.clone());
        let pass = async |span| {
            clock.advance(span);
            Some(clock.now())
        };
        let checked = match mistake {
            Some(mistake) => {
                let backend = Mistaken(table, mistake);
                check_backend(&backend, &window(), ["a", "b"], pass, seed).await
            }
            None => check_backend(&table, &window(), ["a", "b"], pass, seed).await,
        };
        if checked.is_err() {
            return checked.err();
        }
    }
    None
}

/// Shows promise 370.
#[tokio::test(start_paused = true)]
async fn the_check_of_a_backend_finds_every_planted_mistake() {
    assert_eq!(found(None).await, None);
    for mistake in [
        Mistake::PeekTakes,
        Mistake::DenialCharges,
        Mistake::RefundsTwice,
        Mistake::RefundsNothing,
        Mistake::RefundsWhatHasExpired,
        Mistake::IgnoresReset,
        Mistake::ChargesNothing,
        Mistake::SharesKeys,
        Mistake::ZeroCosts,
        Mistake::StatesNoLimit,
        Mistake::BooksTurns,
    ] {
        let found = found(Some(mistake)).await;
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}
