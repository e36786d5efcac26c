//! The last denial of a limit, for threads that do not take its lock.

use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::sync::{AtomicU64, Ordering};

/// The denial of a cost of 1 to one key. Until the moment when that is admitted, time alone changes what it says.
///
/// It is written under the lock of the limit, and hidden there when anything but a denial changes the limit: also an
/// admission, as the clock of another thread may be behind. Others read it at any time: the words are those of one
/// denial if the version is even, and the same before and after they are read.
#[derive(Debug, Default)]
pub(crate) struct LastDenial {
    version: AtomicU64,
    /// When the cost is admitted, when the limit is unused again, the limit, and the hash of the key.
    words: [AtomicU64; 4],
}

impl LastDenial {
    /// The denial of a cost of 1, if it is known.
    #[inline]
    pub(crate) fn of(&self, key: u64, now: Tick) -> Option<Decision> {
        let is_over = now.as_nanos() >= self.words[0].load(Ordering::Relaxed);
        if is_over || self.words[3].load(Ordering::Relaxed) != key {
            return None;
        }
        let version = self.version.load(Ordering::Acquire);
        let word = |at: usize| self.words[at].load(Ordering::Acquire);
        let [until, unused, limit, of] = [word(0), word(1), word(2), word(3)];
        let is_whole = version % 2 == 0 && self.version.load(Ordering::Relaxed) == version;
        (is_whole && of == key && now.as_nanos() < until).then(|| {
            let [wait, reset] = [until, unused].map(|at| at.saturating_sub(now.as_nanos()));
            Decision::new(Verdict::Deny, limit, 0, Some(wait), reset)
        })
    }

    /// Shows that a cost of 1 is denied, if time alone changes what that says. It asks again: if the decision of a request
    /// were passed to it, all decisions would be built in memory.
    #[cold]
    pub(crate) fn show<A: Algorithm>(&self, key: u64, now: Tick, algorithm: &A, state: &A::State) {
        let capabilities = algorithm.capabilities();
        // Of several limits another one may deny in a while.
        if capabilities.limits != 1 || capabilities.counts_denials {
            return;
        }
        let denial = algorithm.peek(state, now, 1);
        let until = denial.retry_after.map_or(Tick::MAX, |wait| now.plus(wait));
        let unused = now.plus(denial.reset_after);
        // Later moments are not exact.
        if until.max(unused) < Tick::MAX {
            self.write([until.as_nanos(), unused.as_nanos(), denial.limit, key]);
        }
    }

    #[inline]
    pub(crate) fn hide(&self) {
        if self.words[0].load(Ordering::Relaxed) > 0 {
            self.write([0; 4]);
        }
    }

    /// Hides it if it is of this key.
    #[inline]
    pub(crate) fn hide_of(&self, key: u64) {
        if self.words[3].load(Ordering::Relaxed) == key {
            self.hide();
        }
    }

    fn write(&self, words: [u64; 4]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(all(test, tower_throttle_loom))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A reader finds one of two denials of its key, or none, and none that was hidden before.
    #[test]
    fn loom_a_denial_is_read_whole() {
        loom::model(|| {
            let last = Arc::new(LastDenial::default());
            let read = |last: &LastDenial| {
                let denial = last.of(1, Tick::from_nanos(0))?;
                let [wait, reset] = [denial.retry_after?, denial.reset_after].map(|d| d.as_nanos());
                Some([wait, reset, u128::from(denial.limit)])
            };
            let reader = loom::thread::spawn({
                let last = Arc::clone(&last);
                move || {
                    let found = read(&last);
                    let is_whole = |words| [[10, 20, 30], [11, 21, 31]].contains(&words);
                    assert!(found.is_none_or(is_whole), "{found:?}");
                }
            });
            last.write([10, 20, 30, 1]);
            last.hide();
            assert_eq!(read(&last), None);
            last.write([11, 21, 31, 1]);
            assert_eq!(read(&last), Some([11, 21, 31]));
            reader.join().expect("no panic");
        });
    }
}
