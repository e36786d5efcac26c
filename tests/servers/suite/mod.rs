//! One suite for every store on a server.
//!
//! A store implements [`Store`], and [`check`] lists its tests. Each part of the suite returns what is
//! wrong: `conformance/memory.rs` shows that it finds a store that admits one unit too many.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::clock::Tick;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{
    FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
};

pub(crate) mod chaos;
pub(crate) mod configurations;
pub(crate) mod decisions;
pub(crate) mod fleet;
pub(crate) mod vectors;

pub(crate) use self::chaos::{Fault, Servers, twice, usual};
use self::vectors::Replay;

/// A store under test.
pub(crate) trait Store: Sized + 'static {
    type Limit: Backend<str> + Clone;

    /// An empty store.
    fn start() -> Self;

    /// A limit under a policy name, without a cache of denials.
    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit;

    /// Lets time pass, if it does not by itself, and returns the present moment then.
    fn pass(&self, _span: Duration) -> Option<Tick> {
        None
    }

    /// How `examples/replay` decides in the store, for [`check_vectors`].
    fn replay(&self) -> Replay {
        panic!("no replay decides in this store")
    }

    /// What is wrong with the store after a replay.
    fn fault_after_replay(&self) -> Option<String> {
        None
    }

    /// All that may happen to it.
    fn faults() -> Vec<Fault<Self>>;
}

/// All algorithms that decide without a queue, with one quota.
fn algorithms(quota: Quota) -> Vec<AnyAlgorithm> {
    vec![
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota).strict()),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(Lockout::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota).initial(1)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        #[cfg(feature = "governor")]
        AnyAlgorithm::new(tower_throttle::Gcra::new(quota)),
    ]
}

pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test)
}

/// A limit that has connected, however long that takes on a busy machine.
async fn connected<L: Backend<str>>(limit: L) -> L {
    let begun = tokio::time::Instant::now();
    while let Err(error) = limit.apply("key", Op::Peek(0)).await {
        let is_over = begun.elapsed() > Duration::from_secs(30);
        assert!(!is_over && error.is_transient(), "{error}");
        tokio::task::yield_now().await;
    }
    limit
}

/// The tests of one store.
macro_rules! check {
    ($store:ty $(, $ignored:meta)?) => {
        crate::suite::check_way!($store $(, $ignored)?);

        $(#[$ignored])?
        #[test]
        fn configurations_together_admit_at_most_the_sum() {
            assert_eq!(crate::suite::configurations::fault::<$store>(), None);
        }
    };
}
pub(crate) use check;

/// The tests of one more way to reach a store that [`check`] has.
macro_rules! check_way {
    ($store:ty $(, $ignored:meta)?) => {
        $(#[$ignored])?
        #[test]
        fn decides_as_in_process() {
            assert_eq!(crate::suite::decisions::fault::<$store>(), None);
        }

        /// Shows promise 87.
        $(#[$ignored])?
        #[test]
        fn admits_no_more_under_faults_and_recovers() {
            assert_eq!(crate::suite::chaos::fault::<$store>(), None);
        }
    };
}
pub(crate) use check_way;

/// What machines on one database do. `store` makes one with a table, and `open` one of another machine.
macro_rules! check_machines {
    ($limit:expr, $store:path, $open:path, $address:path $(, $ignored:meta)?) => {
        /// Shows promise 83.
        $(#[$ignored])?
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn machines_with_connections_of_their_own_admit_exactly_the_limit() {
            let (server, _) = $store("machines").await;
            let stores = [(); 4].map(|()| $open(&$address(&server)));
            crate::shared_limit::machines_admit_exactly($limit, stores).await;
        }

        /// Shows promise 360.
        $(#[$ignored])?
        #[tokio::test]
        async fn machines_share_the_permits_of_a_fleet() {
            let (_server, store) = $store("permits").await;
            crate::shared_limit::machines_share_permits(store).await;
        }

        /// Shows promises 83, 152.
        $(#[$ignored])?
        #[tokio::test]
        async fn an_uncontended_decision_is_one_round_trip() {
            let (_server, store) = $store("alone").await;
            crate::shared_limit::a_decision_is_one_round_trip(store).await;
        }

        /// Shows promises 83, 85, 370.
        $(#[$ignored])?
        #[tokio::test]
        async fn the_server_passes_the_check_of_stores() {
            let (_server, store) = $store("testkit").await;
            assert_eq!(tower_throttle::testkit::check_cas_store(store).await, Ok(()));
        }
    };
}
pub(crate) use check_machines;

/// The recorded cases in one store.
macro_rules! check_vectors {
    ($store:ty $(, $ignored:meta)?) => {
        /// Shows promise 101.
        $(#[$ignored])?
        #[test]
        fn decides_the_recorded_cases() {
            assert_eq!(crate::suite::vectors::fault::<$store>(), None);
        }
    };
}
pub(crate) use check_vectors;
