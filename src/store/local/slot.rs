//! Sets of slots: what stands where in the words of a table, and the lock of each set.
//!
//! A set is one cache line, or two or five for states of several words: a header, then the tags of
//! its slots, then their states. Of five lines the first has all the tags, and each other one two
//! states of four words.
//!
//! ```text
//! one word a state:  | header | tag tag tag (tag) | state | state | state | state |
//! ```
//!
//! A tag is 48 bits, so three words hold four of them: one in the low bits of each, and the last
//! one, in three pieces, above those. Zero is an empty slot.
//!
//! # The protocol
//! The header is a sequence lock. Whoever wants to write swaps the header it has read for the same
//! one with `LOCKED`, writes, and stores a header of the next version. The swap succeeds only if
//! nothing was written since the header was read, so a decision made from what was read meanwhile
//! still holds; whoever fails starts again. Nobody waits while holding a lock.
//!
//! A reader loads the header, the words, and the header again. If both headers are equal and
//! unlocked, the words belong together: had one of them come from a writer, the fences below would
//! make that writer's `LOCKED`, or a later header, visible to the second load.
//!
//! A version never comes back (2^46 writes to one set), so a slot that was emptied and taken by
//! another key between the two looks is noticed too.

use super::probe::MAX_PROBES;
use crate::sync::{AtomicU64, Ordering, backoff, fence};

/// Eight words, one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct CacheLine([AtomicU64; 8]);

/// The most slots that a set has.
pub(super) const MAX_SLOTS: usize = 8;

/// How many lines, slots and words of tags a set has, by the words of a state.
pub(super) const fn lines(words: usize) -> usize {
    [1, 1, 2, 2, 5][words]
}
pub(super) const fn slots(words: usize) -> usize {
    [4, 4, 5, 4, 8][words]
}
const fn tag_words(words: usize) -> usize {
    slots(words) - 1
}

/// What a set says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(u64);

impl Header {
    const LOCKED: u64 = 1;
    const PROBE_LEN_SHIFT: u32 = 1;
    const PROBE_LEN_MASK: u64 = MAX_PROBES as u64 - 1;
    const EPOCH_SHIFT: u32 = 6;
    const VERSION_UNIT: u64 = 1 << 18;

    const SLOW_PATH_MASK: u64 = Self::LOCKED | 0xFFF << Self::EPOCH_SHIFT;

    const fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    /// How far from this set, in steps of the probe sequence, the keys live whose home it is.
    pub(super) const fn reach(self) -> usize {
        (self.0 >> Self::PROBE_LEN_SHIFT & Self::PROBE_LEN_MASK) as usize
    }

    pub(super) const fn with_probe_len(self, reach: usize) -> Self {
        Self(
            self.0 & !(Self::PROBE_LEN_MASK << Self::PROBE_LEN_SHIFT)
                | (reach as u64) << Self::PROBE_LEN_SHIFT,
        )
    }

    /// The algorithm that the states of this set are packed by, modulo 2^12.
    #[inline]
    pub(super) const fn generation(self) -> u64 {
        self.0 >> Self::EPOCH_SHIFT & 0xFFF
    }

    pub(super) const fn with_epoch(self, generation: u64) -> Self {
        Self(self.0 & !(0xFFF << Self::EPOCH_SHIFT) | (generation & 0xFFF) << Self::EPOCH_SHIFT)
    }
}

/// One set, in which a state takes `W` words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set<'a, const W: usize>(&'a [CacheLine]);

/// A slot and what was read from it.
pub(super) type SlotState<const W: usize> = (usize, [u64; W]);

/// Everything in a set at one moment.
#[derive(Debug)]
pub(super) struct Snapshot<const W: usize> {
    pub(super) header: Header,
    pub(super) tags: [u64; MAX_SLOTS],
    pub(super) states: [[u64; W]; MAX_SLOTS],
}

const TAG_MASK: u64 = (1 << 48) - 1;

impl<'a, const W: usize> Set<'a, W> {
    pub(super) const SLOTS: usize = slots(W);

    #[inline]
    pub(super) fn of(table: &'a [CacheLine], index: usize) -> Self {
        let first = index * lines(W);
        Self(&table[first..first + lines(W)])
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.0[at / 8].0[at % 8]
    }

    #[inline]
    fn header(&self) -> &AtomicU64 {
        self.word(0)
    }

    #[inline]
    fn tag_word(&self, at: usize) -> &AtomicU64 {
        self.word(1 + at)
    }

    #[inline]
    fn state_word(&self, slot: usize, at: usize) -> &AtomicU64 {
        self.word(1 + tag_words(W) + slot * W + at)
    }

    /// Looks at all tags before it decides anything: where a key stands is chance, which no
    /// processor foresees.
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        let (mut found, mut pieces) = (usize::MAX, 0);
        for at in 0..tag_words(W) {
            let word = self.tag_word(at).load(Ordering::Relaxed);
            found = if word & TAG_MASK == tag { at } else { found };
            if at < 3 {
                pieces |= word >> 48 << (16 * at);
            }
        }
        found = if pieces == tag { tag_words(W) } else { found };
        (found != usize::MAX).then_some(found)
    }

    #[inline]
    fn state(&self, slot: usize) -> [u64; W] {
        let mut words = [0; W];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.state_word(slot, at).load(Ordering::Relaxed);
        }
        words
    }

    /// Looks once for the slot with this tag; `None` if it is not there, if somebody is writing, or
    /// if the set has known more than one algorithm.
    #[expect(
        clippy::inline_always,
        reason = "what was found is several words, which would go through memory"
    )]
    #[inline(always)]
    pub(super) fn glance(&self, tag: u64) -> Option<(Header, SlotState<W>)> {
        let header = Header(self.header().load(Ordering::Acquire));
        if header.0 & Header::SLOW_PATH_MASK != 0 {
            return None;
        }
        for line in 1..lines(W) {
            // All lines of the set are fetched at once, and not one because of the other.
            std::hint::black_box(self.word(8 * line).load(Ordering::Relaxed));
        }
        let slot = self.find(tag)?;
        let state = self.state(slot);
        // As in `read_consistent`.
        fence(Ordering::Acquire);
        (self.header().load(Ordering::Relaxed) == header.0).then_some((header, (slot, state)))
    }

    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn read_unvalidated(&self, tag: u64) -> Option<[u64; W]> {
        self.header().load(Ordering::Acquire);
        self.find(tag).map(|slot| self.state(slot))
    }

    /// Reads by `read` until nobody has written meanwhile.
    #[inline]
    fn read_consistent<T>(&self, read: impl Fn(Header) -> T) -> (Header, T) {
        let mut turns = 0;
        loop {
            let header = Header(self.header().load(Ordering::Acquire));
            if header.is_locked() {
                backoff(&mut turns);
                continue;
            }
            let answer = read(header);
            // With the writer's fence: had `read` seen a word written since, so would this load.
            fence(Ordering::Acquire);
            if self.header().load(Ordering::Relaxed) == header.0 {
                return (header, answer);
            }
        }
    }

    /// Looks for the slot with this tag.
    #[inline]
    pub(super) fn look(&self, tag: u64) -> (Header, Option<SlotState<W>>) {
        self.read_consistent(|_| self.find(tag).map(|slot| (slot, self.state(slot))))
    }

    pub(super) fn snapshot(&self) -> Snapshot<W> {
        let (header, (tags, states)) = self.read_consistent(|_| {
            let mut tags = [0; MAX_SLOTS];
            let mut states = [[0; W]; MAX_SLOTS];
            for slot in 0..Self::SLOTS {
                tags[slot] = self.tag(slot);
                states[slot] = self.state(slot);
            }
            (tags, states)
        });
        Snapshot {
            header,
            tags,
            states,
        }
    }

    /// Whether nothing was written since `header` was read.
    pub(super) fn is_unchanged(&self, header: Header) -> bool {
        fence(Ordering::Acquire);
        self.header().load(Ordering::Relaxed) == header.0
    }

    fn tag(&self, slot: usize) -> u64 {
        if slot < tag_words(W) {
            return self.tag_word(slot).load(Ordering::Relaxed) & TAG_MASK;
        }
        (0..3).fold(0, |tag, at| {
            tag | self.tag_word(at).load(Ordering::Relaxed) >> 48 << (16 * at)
        })
    }

    /// Locks, if nothing was written since `header` was read.
    #[inline]
    pub(super) fn lock(&self, header: Header) -> Option<SetGuard<'a, W>> {
        let locked = header.0 | Header::LOCKED;
        self.header()
            .compare_exchange(header.0, locked, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // Before any word is written: a reader that sees one of them sees `LOCKED` as well.
        fence(Ordering::Release);
        Some(SetGuard {
            set: *self,
            next: header,
        })
    }
}

/// A set that this thread alone may write. Dropped, it is unlocked.
#[derive(Debug)]
pub(super) struct SetGuard<'a, const W: usize> {
    set: Set<'a, W>,
    /// The header it is left with, but for the version.
    next: Header,
}

impl<const W: usize> SetGuard<'_, W> {
    #[expect(clippy::inline_always, reason = "as for `Set::glance`")]
    #[inline(always)]
    pub(super) fn write_state(&mut self, slot: usize, words: &[u64; W]) {
        for (at, word) in words.iter().enumerate() {
            self.set
                .state_word(slot, at)
                .store(*word, Ordering::Relaxed);
        }
    }

    pub(super) fn write_tag(&mut self, slot: usize, tag: u64) {
        let keep = |at: usize, mask: u64, bits: u64| {
            let word = self.set.tag_word(at);
            word.store(
                word.load(Ordering::Relaxed) & !mask | bits,
                Ordering::Relaxed,
            );
        };
        if slot < tag_words(W) {
            keep(slot, TAG_MASK, tag);
        } else {
            for at in 0..3 {
                keep(at, !TAG_MASK, tag >> (16 * at) << 48);
            }
        }
    }

    pub(super) fn set_probe_len(&mut self, reach: usize) {
        self.next = self.next.with_probe_len(reach);
    }

    pub(super) fn set_epoch(&mut self, generation: u64) {
        self.next = self.next.with_epoch(generation);
    }
}

impl<const W: usize> Drop for SetGuard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        let next = self.next.0.wrapping_add(Header::VERSION_UNIT);
        self.set.header().store(next, Ordering::Release);
    }
}
