//! What a fallback says of its backends.

use tower_throttle::store::{Backend, Fallback};
use tower_throttle::{FixedWindow, LeakyBucket, Local, Quota};

/// A refund goes to the backend that took the cost, and a mistake is no outage.
#[cfg(feature = "cas")]
#[tokio::test(start_paused = true)]
async fn the_secondary_backend_decides_in_an_outage_alone() {
    use tower_throttle::store::cas::{Cas, Fault, Faulty, MemoryStore};
    use tower_throttle::{Decision, store::Op};

    let memory = MemoryStore::new();
    let faulty = Faulty::new(memory.clone());
    let window = |limit| FixedWindow::new(Quota::per_day(limit));
    let primary = Cas::new(faulty.clone(), "api", window(9)).expect("a limit");
    let limit = Fallback::new(primary, Local::new(window(5)));
    let take = async |cost| limit.decide("key", cost).await.expect("a decision");
    let refund = |of: Decision| Op::Refund(1, of.receipt());
    let first = take(1).await;
    assert_eq!((first.remaining(), limit.is_on_secondary()), (8, false));
    faulty.plan([Fault::LostRequest; 99]);
    let second = take(1).await;
    assert_eq!((second.remaining(), limit.is_on_secondary()), (4, true));
    assert!(limit.apply("key", refund(first)).await.is_err());
    limit.detach("key", refund(second));
    assert_eq!(take(0).await.remaining(), 5);
    faulty.plan([]);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let refunded = limit.apply("key", refund(first)).await;
    assert_eq!(refunded.expect("a refund").remaining(), 9);
    assert!(limit.is_on_secondary(), "a refund is no decision");
    assert_eq!(take(1).await.remaining(), 8);
    assert!(!limit.is_on_secondary());
    crate::overwrite::overwrite(&memory, &memory.keys()[0], 7, b"damaged").await;
    let mistake = limit.decide("key", 1).await;
    assert!(!mistake.expect_err("a mistake").is_transient());
}

#[test]
fn a_fallback_has_the_limits_of_its_primary_and_the_keys_of_both() {
    let window = || Local::new(FixedWindow::new(Quota::per_day(9)));
    let line = LeakyBucket::new(Quota::per_second(10));
    let primary = Local::new((FixedWindow::new(Quota::per_day(7)), line));
    let small = || window().capacity(64);
    let limit = Fallback::new(primary.clone(), window());
    let quotas = Backend::<u16>::quotas(&primary);
    assert_eq!(Backend::<u16>::quotas(&limit), quotas);
    assert_eq!(Backend::<u16>::limits(&limit), 2);
    let (first, second) = (small(), small());
    let limit = Fallback::new(first.clone(), second.clone());
    for key in 0..1_000_u16 {
        let _ = first.check(&key, 1);
        let _ = second.check(&key, 1);
        let _ = second.check(&key, 1);
    }
    let fullness = Backend::<u16>::stats(&limit);
    let of = |one: &Local<FixedWindow>| Backend::<u16>::stats(one);
    assert_eq!(fullness, of(&first) + of(&second));
    assert!(of(&first).evicted > 0 && of(&second).evicted > 0);
    assert!(fullness.live > 64 && fullness.largest_use_percent > 0);
}
