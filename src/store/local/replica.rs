//! Assigns threads to replicas of the history.

#[cfg(not(all(test, any(tower_throttle_loom, tower_throttle_shuttle))))]
pub(super) use self::real::thread_replica;

#[cfg(all(test, any(tower_throttle_loom, tower_throttle_shuttle)))]
pub(super) use self::model::{thread_replica, use_replica};

/// The number of replicas. Models use few, because each replica has a lock.
pub(super) const REPLICAS: usize =
    if cfg!(all(test, any(tower_throttle_loom, tower_throttle_shuttle))) {
        2
    } else {
        16
    };

#[cfg(not(all(test, any(tower_throttle_loom, tower_throttle_shuttle))))]
mod real {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::REPLICAS;

    /// The replica of this thread.
    pub(in super::super) fn thread_replica() -> usize {
        static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static THREAD_INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        THREAD_INDEX.with(|index| {
            if index.get() == usize::MAX {
                index.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
            }
            index.get() % REPLICAS
        })
    }
}

/// All threads of a model run on one thread of the operating system, and they start in any order.
/// A model therefore chooses the replica of each thread.
#[cfg(all(test, any(tower_throttle_loom, tower_throttle_shuttle)))]
mod model {
    use std::cell::Cell;

    #[cfg(tower_throttle_loom)]
    use loom::thread_local;
    #[cfg(tower_throttle_shuttle)]
    use shuttle::thread_local;

    use super::REPLICAS;

    thread_local! {
        static THREAD_INDEX: Cell<usize> = Cell::new(0);
    }

    /// The replica of this thread of the model.
    pub(in super::super) fn thread_replica() -> usize {
        THREAD_INDEX.with(Cell::get) % REPLICAS
    }

    /// Makes this thread of the model read `replica`. The default is the first replica.
    pub(in super::super) fn use_replica(replica: usize) {
        THREAD_INDEX.with(|index| index.set(replica));
    }
}
