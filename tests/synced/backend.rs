//! A synced limit as a backend like any other.

use std::time::Duration;

use tower_throttle::algorithm::Portable;
use tower_throttle::store::Fallback;
use tower_throttle::store::cas::{Faulty, MemoryStore};
use tower_throttle::store::synced::{Synced, WhenCutOff};
use tower_throttle::{
    AnyAlgorithm, FixedWindow, LeakyBucket, Local, Quota, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, WarmUp,
};

use crate::memory_fleet::{a_layer_admits_and_denies, algorithms};
use crate::{admit, builder, machine, outage, pass, remaining, take, take_all, window};

#[tokio::test(start_paused = true)]
async fn a_layer_with_a_synced_limit_admits_and_denies() {
    a_layer_admits_and_denies(machine(&MemoryStore::new())).await;
}

/// Each algorithm decides like one machine, as long as there is one.
#[tokio::test(start_paused = true)]
async fn every_algorithm_admits_its_limit() {
    let quota = Quota::per(10, Duration::from_secs(1_000_000));
    let anchored = AnyAlgorithm::new(FixedWindow::new(quota).anchored());
    for algorithm in algorithms(quota).into_iter().chain([anchored]) {
        let store = MemoryStore::new();
        let one = builder(&store)
            .build("api", algorithm.clone())
            .expect("a limit");
        assert_eq!(take_all(&one).await, 10, "{algorithm:?}");
        pass(2).await;
        let other = builder(&store)
            .build("api", algorithm.clone())
            .expect("a limit");
        admit(&other, 1).await;
        pass(2).await;
        assert_eq!(remaining(&other).await, 0, "{algorithm:?}");
    }
    let pair = (TokenBucket::new(quota), FixedWindow::new(quota));
    let one = builder(&MemoryStore::new())
        .build("api", pair)
        .expect("a limit");
    assert_eq!(take_all(&one).await, 10);
}

/// Requests up to 2,000 units per second for `seconds`, and returns how many of them are admitted per
/// second of the second half.
async fn admitted_per_second<A: Portable>(limits: &[Synced<MemoryStore, A>], seconds: u64) -> u64 {
    let (mut admitted, half) = (0, seconds * 500);
    for millisecond in 0..2 * half {
        for _ in 0..2 {
            for limit in limits {
                let is_admitted = take(limit, 1).await.is_admitted();
                admitted += u64::from(is_admitted && millisecond >= half);
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    admitted * 1_000 / half
}

/// Also if the burst does not last for an interval.
#[tokio::test(start_paused = true)]
async fn one_machine_admits_all_of_its_limit() {
    // Until the first exchange, a machine does not know the fleet's time.
    async fn admitted<A: Portable>(algorithm: A, interval: Duration) -> u64 {
        let limit = builder(&MemoryStore::new()).interval(interval);
        let limit = limit.build("api", algorithm).expect("a limit");
        admitted_per_second(&[limit], 12 + 6 * interval.as_secs()).await
    }
    let quota = Quota::per_second(500).burst(1);
    let bucket = TokenBucket::new(quota);
    let slower = TokenBucket::new(Quota::per_second(400));
    #[cfg(feature = "governor")]
    let gcra = tower_throttle::algorithm::Gcra::new(quota);
    for interval in [100, 2_000].map(Duration::from_millis) {
        assert_eq!(admitted(bucket, interval).await, 500, "{interval:?}");
        assert_eq!(admitted(LeakyBucket::new(quota), interval).await, 500);
        #[cfg(feature = "governor")]
        assert_eq!(admitted(gcra, interval).await, 500);
        let any = AnyAlgorithm::new(bucket);
        assert_eq!(admitted(any, interval).await, 500, "{interval:?}");
        let of_pair = admitted((bucket, slower), interval).await;
        assert!((399..=401).contains(&of_pair), "{interval:?}: {of_pair}");
        // Beside limits that do not deny. Windows that end, one that does not, and a log.
        let (second, hour) = (Quota::per_second(1_000), Quota::per_hour(9_999_999));
        let others = [
            AnyAlgorithm::new((bucket, FixedWindow::new(second))),
            AnyAlgorithm::new((bucket, FixedWindow::new(hour))),
            AnyAlgorithm::new((FixedWindow::new(second).anchored(), bucket)),
            AnyAlgorithm::new((bucket, SlidingWindow::new(second))),
            AnyAlgorithm::new((SlidingGrid::new(second), bucket)),
            // It counts those of an interval as of its end.
            AnyAlgorithm::new((bucket, SlidingLog::new(Quota::per_second(3_000)))),
        ];
        for limits in others {
            let of_set = admitted(limits.clone(), interval).await;
            // Costs of many cells are put together, to the nanosecond.
            assert!(
                (499..=500).contains(&of_set),
                "{interval:?}: {of_set} of {limits:?}"
            );
        }
    }
    let warm_up = WarmUp::new(Quota::per_second(100), Duration::from_secs(1));
    let warm = admitted(warm_up, Duration::from_millis(100)).await;
    assert!((99..=100).contains(&warm), "{warm}");
}

/// The store keeps what one of them has used, although the bucket is full when it is reported.
#[tokio::test(start_paused = true)]
async fn machines_share_a_small_bucket_with_a_long_interval() {
    let store = MemoryStore::new();
    let limits = [(); 2].map(|()| {
        let bucket = TokenBucket::new(Quota::per_second(100).burst(1));
        let limit = builder(&store).interval(Duration::from_secs(3));
        limit.build("api", bucket).expect("a limit")
    });
    let admitted = admitted_per_second(&limits, 24).await;
    assert!((90..=130).contains(&admitted), "{admitted}");
}

/// A queue is of one machine. Its next turn is later if others have taken turns.
#[tokio::test(start_paused = true)]
async fn requests_wait_in_the_queue_of_a_machine() {
    let store = MemoryStore::new();
    let limit = || {
        let bucket = LeakyBucket::new(Quota::per_second(1)).queue(10);
        builder(&store).build("api", bucket).expect("a limit")
    };
    let (a, b) = (limit(), limit());
    for _ in 0..4 {
        admit(&a, 1).await;
    }
    admit(&b, 1).await;
    pass(3).await;
    admit(&b, 1).await;
    pass(3).await;
    let turn = take(&b, 1).await;
    let tower_throttle::Verdict::Wait(wait) = turn.verdict else {
        panic!("{turn:?}");
    };
    assert!(wait > Duration::from_secs(4), "{wait:?}");
    let warm_up = WarmUp::new(Quota::per_second(10), Duration::from_secs(1));
    let limit = builder(&store).build("warm", warm_up).expect("a limit");
    assert!(!take(&limit, 1).await.is_denied());
}

#[tokio::test(start_paused = true)]
async fn a_fallback_decides_while_the_store_is_not_reached() {
    let store = Faulty::new(MemoryStore::new());
    let limit = builder(&store)
        .when_cut_off(WhenCutOff::Fail, 1)
        .build("api", window());
    let fallback = Fallback::new(limit.expect("a limit"), Local::new(window()));
    store.plan(outage());
    let decide = async || tower_throttle::store::Backend::decide(&fallback, "key", 1).await;
    for _ in 0..50 {
        assert!(decide().await.expect("a decision").is_admitted());
    }
    pass(4).await;
    let decision = decide().await.expect("a decision");
    assert_eq!(decision.remaining(), 99, "of a limit that was unused");
}
