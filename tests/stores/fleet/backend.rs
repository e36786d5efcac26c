//! A limit of a fleet as a backend like any other.

use std::time::Duration;

use tower_throttle::algorithm::share_of;
use tower_throttle::store::Backend;
use tower_throttle::store::{cas::MemoryStore, fleet::Synced};
use tower_throttle::{AnyAlgorithm, FixedWindow, Local, Quota, TokenBucket};

use crate::fleet::{admit, machine, pass, take};

#[tokio::test(start_paused = true)]
async fn a_denial_tells_when_the_missing_units_are_free() {
    // The exchanges of each round come at other moments of the units.
    for round in 0..400 {
        tokio::time::advance(Duration::from_nanos(round * 250_013)).await;
        let bucket = TokenBucket::new(Quota::per_second(10).burst(10));
        let limit: Synced<_, TokenBucket> = machine(&MemoryStore::new(), bucket);
        admit(&limit, 4).await;
        for _ in 0..5 {
            admit(&limit, 1).await;
            pass(1).await;
        }
        let denied = take(&limit, 10).await;
        let retry_after = denied.retry_after.expect("a denial");
        let wait = retry_after.as_millis();
        let missing = u128::from(10 - denied.remaining());
        assert!(missing < 8, "nothing is held: {denied:?}");
        // One of those that it holds may have been granted ahead, and is not free for others yet.
        let most = (missing + 1) * 100;
        assert!((most - 200..=most).contains(&wait), "{wait} for {missing}");
        tokio::time::sleep(retry_after).await;
        assert!(take(&limit, 10).await.is_admitted(), "after {wait}");
    }
}

/// Shows promise 99.
#[test]
fn each_limit_of_a_set_has_a_share() {
    let set = || {
        let (second, hour) = (Quota::per_second(10), Quota::per_hour(600));
        AnyAlgorithm::new((TokenBucket::new(second), FixedWindow::new(hour)))
    };
    let local = Local::new(share_of(&set(), 4).expect("a share"));
    let quotas = Backend::<str>::quotas(&local);
    assert_eq!(quotas, [Quota::per_second(2), Quota::per_hour(150)]);
}
