//! What a fallback says of its backends.

use std::future::{Ready, ready};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tower_throttle::store::{Backend, Fallback, Op, Receipt};
use tower_throttle::{Decision, FixedWindow, LeakyBucket, Local, Quota, StoreError, Verdict};

/// Decides on each operation by the time of its receipt.
struct Timed;

const AT_TURN: Receipt = Receipt::at(7);

impl Backend<u8> for Timed {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, _: &u8, op: Op) -> Self::Future {
        let remaining = match op {
            Op::Refund(_, receipt) => receipt.moment(),
            _ => 0,
        };
        ready(Ok(Decision::new(Verdict::Admit, 9, remaining, None, 0)))
    }

    fn receipt_at_turn(&self, _: &u8, _: Receipt) -> Receipt {
        AT_TURN
    }

    fn quotas(&self) -> Vec<Quota> {
        Vec::new()
    }
}

fn queue_of(backend: &impl Backend<u16>, key: u16) -> u64 {
    let mut hasher = DefaultHasher::new();
    backend.hash_queue(&key, &mut hasher);
    hasher.finish()
}

#[test]
fn a_fallback_has_the_limits_of_its_primary_and_the_keys_of_both() {
    let window = || Local::new(FixedWindow::new(Quota::per_day(9)));
    let line = LeakyBucket::new(Quota::per_second(10)).queue(5);
    let line = line.max_wait(Duration::from_millis(300));
    let primary = Local::new((FixedWindow::new(Quota::per_day(7)), line));
    let small = || window().capacity(64);
    let limit = Fallback::new(primary.clone(), window());
    assert_eq!(
        Backend::<u16>::quotas(&limit),
        Backend::<u16>::quotas(&primary)
    );
    assert_eq!(Backend::<u16>::limits(&limit), 2);
    assert_eq!(limit.max_wait(&1_u16), Duration::from_millis(300));
    for key in 0..100 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        assert_eq!(queue_of(&limit, key), hasher.finish());
    }
    let (first, second) = (small(), small());
    let limit = Fallback::new(first.clone(), second.clone());
    for key in 0..1_000_u16 {
        let _ = first.check(&key);
        let _ = second.check(&key);
        let _ = second.check(&key);
    }
    let losses = |of: &Local<FixedWindow>| Backend::<u16>::losses(of).evicted;
    assert!(losses(&first) > 0 && losses(&second) > 0);
    let both = losses(&first) + losses(&second);
    assert_eq!(Backend::<u16>::losses(&limit).evicted, both);
    let fullness = Backend::<u16>::fullness(&limit).unwrap();
    let of = |one: &Local<FixedWindow>| Backend::<u16>::fullness(one).unwrap();
    assert_eq!(fullness, of(&first) + of(&second));
    assert!(fullness.keys > 64 && fullness.largest_use_percent > 0);
}

/// Shows promise 12.
#[tokio::test]
async fn at_its_turn_a_request_has_the_receipt_of_the_backend_that_took_its_cost() {
    let limit = Fallback::new(Timed, Local::new(FixedWindow::new(Quota::per_day(9))));
    let receipt = limit.decide(&1, 1).await.unwrap().receipt();
    let receipt = limit.receipt_at_turn(&1, receipt);
    let refunded = limit.apply(&1, Op::Refund(1, receipt)).await.unwrap();
    assert_eq!(refunded.remaining(), AT_TURN.moment());
}
