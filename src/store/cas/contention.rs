//! How machines that swap the same key take turns.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::store::local::Seeded;
use crate::sync::{Mutex, lock};

/// The shortest window: about as long as a load and a swap take.
const MIN: Duration = Duration::from_millis(1);

/// Keys that other machines swap too, each with the window in which this machine waits at random before it swaps the key,
/// and the version that it has written last.
///
/// A window doubles with each conflict and halves with each success, so two of five attempts succeed or more,
/// however many machines swap the key. Each success carries all calls that queued meanwhile. A key that
/// one machine swaps alone has no window.
#[derive(Debug, Default)]
pub(in crate::store) struct Contended(Mutex<Keys>);

type Keys = HashMap<Arc<str>, (Duration, Option<u64>), Seeded>;

/// How many there are at most. Then all of them count as used by this machine alone until the next conflict.
const MAX_KEYS: usize = 10_000;

impl Contended {
    pub(in crate::store) fn has(&self, key: &str) -> bool {
        lock(&self.0).contains_key(key)
    }

    /// The time in which a random moment is drawn for a key, if the oldest call has waited for `waited`.
    pub(in crate::store) fn window(
        &self,
        key: &str,
        waited: Duration,
        deadline: Duration,
    ) -> Duration {
        let keys = lock(&self.0);
        let window = keys.get(key).map(|(window, _)| *window);
        turn(window.unwrap_or_default(), waited, deadline)
    }

    /// Notes that a swap was in conflict, or succeeded. Returns whether the key was contended before.
    pub(in crate::store) fn note(
        &self,
        key: &Arc<str>,
        is_conflict: bool,
        deadline: Duration,
    ) -> bool {
        let mut keys = lock(&self.0);
        let was_contended = keys.contains_key(key);
        if is_conflict {
            if keys.len() >= MAX_KEYS && !was_contended {
                keys.clear();
            }
            let (window, _) = keys.entry(Arc::clone(key)).or_default();
            *window = after_conflict(*window, deadline);
        } else if let Some((window, _)) = keys.get_mut(key) {
            *window = after_success(*window);
            if window.is_zero() {
                keys.remove(key);
            }
        }
        was_contended
    }

    /// Lets a key be swapped, until the next conflict.
    pub(super) fn forget(&self, key: &str) {
        lock(&self.0).remove(key);
    }

    /// Notes which versions a program has found and written: it is a conflict if another machine has written since.
    pub(super) fn note_turn(
        &self,
        key: &Arc<str>,
        [before, after]: [Option<u64>; 2],
        deadline: Duration,
    ) {
        let last = lock(&self.0).get(key).and_then(|(_, last)| *last);
        let is_own = last.is_some() && last == before;
        if is_own && before == after {
            // A denial does not show that this machine is alone: an exhausted key is written by none.
            return;
        }
        self.note(key, !is_own, deadline);
        if let Some((_, last)) = lock(&self.0).get_mut(key) {
            *last = after;
        }
    }
}

/// A window after a conflict. One of more than a quarter of the deadline would leave no time for a second attempt.
fn after_conflict(window: Duration, deadline: Duration) -> Duration {
    (window * 2).max(MIN).min(deadline / 4)
}

fn after_success(window: Duration) -> Duration {
    let shorter = window / 2;
    if shorter < MIN {
        Duration::ZERO
    } else {
        shorter
    }
}

/// The part of a window in which a random moment is drawn, if the oldest call has waited for `waited`. A machine
/// that has waited for long goes first, so that the machines take turns.
fn turn(window: Duration, waited: Duration, deadline: Duration) -> Duration {
    if waited > deadline / 4 {
        window / 4
    } else {
        window
    }
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(1);
    /// Between a load and its swap, in nanoseconds.
    const ROUND_TRIP: u64 = 1_000_000;

    /// The longest time without calls for a key on one machine.
    const IDLE: u64 = 32_000_000;

    /// The percentage of swaps that succeed if so many machines use one key, and the longest time that a
    /// machine waits for a success.
    fn simulate(machines: usize) -> (u32, Duration) {
        let mut random = 1_u64;
        let mut below = |most: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % most.max(1)
        };
        let (mut version, mut tries, mut successes, mut longest) = (0, 0, 0, 0);
        let mut windows = vec![Duration::ZERO; machines];
        let mut since = vec![0; machines];
        // The moments of loads, and of swaps with the version that was loaded.
        let steps = (0..machines).map(|at| Reverse((at as u64, at, None)));
        let mut steps: BinaryHeap<_> = steps.collect();
        while let Some(Reverse((now, at, loaded))) = steps.pop() {
            if now > 20_000_000_000 {
                break;
            }
            let Some(loaded) = loaded else {
                steps.push(Reverse((now + ROUND_TRIP, at, Some(version))));
                continue;
            };
            tries += 1;
            if loaded == version {
                (version, successes) = (version + 1, successes + 1);
                longest = longest.max(now - since[at]);
                since[at] = now + below(IDLE);
                windows[at] = after_success(windows[at]);
            } else {
                windows[at] = after_conflict(windows[at], DEADLINE);
            }
            let from = now.max(since[at]);
            let waited = Duration::from_nanos(from - since[at]);
            let window = turn(windows[at], waited, DEADLINE).as_nanos();
            let window = u64::try_from(window).unwrap_or(u64::MAX);
            steps.push(Reverse((from + below(window), at, None)));
        }
        let longest = Duration::from_nanos(longest);
        (100 * successes / tries, longest)
    }

    /// Shows promise 152.
    #[test]
    fn swaps_succeed_and_every_machine_has_its_turn_however_many_there_are() {
        for machines in [1, 2, 8, 64] {
            let (succeeded, longest) = simulate(machines);
            assert!(succeeded > 40, "{machines} machines: {succeeded}");
            assert!(longest < DEADLINE, "{machines} machines: {longest:?}");
        }
    }

    /// Shows promise 152.
    #[test]
    fn a_key_that_one_machine_swaps_alone_has_no_window() {
        let longest = (0..20).fold(Duration::ZERO, |window, _| after_conflict(window, DEADLINE));
        assert_eq!(longest, DEADLINE / 4);
        let last = (0..9).fold(longest, |window, _| after_success(window));
        assert!(last.is_zero());
    }
}
