//! Sets of slots: the layout of a set, and its lock.
//!
//! A set is one cache line, or two or five if a state takes several words. It contains a header,
//! then the tags of its slots, then their states. In a set of five lines, the first line holds all
//! tags and each of the others holds two states of four words.
//!
//! ```text
//! one word per state:   | header | tag tag tag (tag) | state | state | state | state |
//! two words per state:  | header | tag tag tag (tag) | state   state | state   state |
//!                       | state    state | state   state | state   state | tag | --- |
//! ```
//!
//! A tag is 48 bits, so three words hold four tags: one in the low bits of each word, and the last
//! one split into three pieces in the high bits. A tag of zero marks an empty slot.
//!
//! # The protocol
//! The header is a seqlock. A writer sets `LOCKED` in the header that it has read
//! (compare-exchange), writes, and stores a header with the next version. The exchange succeeds
//! only if nothing was written since the header was read, so a decision made from the words read
//! since then is still valid. If the exchange fails, the writer starts again. No thread waits for a
//! lock while it holds one.
//!
//! A reader loads the header, the words, and the header again. If both headers are equal and
//! unlocked, the words are consistent. If one of them came from a writer in between, the fences
//! below would make that writer's `LOCKED`, or a later header, visible to the second load.
//!
//! A version does not repeat within 2^34 writes to one set, so a reader also detects a slot that
//! was emptied and taken by another key between the two loads.
//!
//! # Denied keys
//! The header has a bit per slot: whether the last request of its key was denied. It protects the
//! key from eviction, because a state alone does not show that a cost above 1 is being denied.
//! Only the first denial after an admission writes it. Each write of a state clears it.

use crate::sync::{AtomicU64, Ordering, backoff, fence};

/// Eight words, one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct CacheLine([AtomicU64; 8]);

/// The largest number of slots per set.
pub(super) const MAX_SLOTS: usize = 8;

/// The largest number of sets that may hold the keys of one home set, including the home. Headers
/// and tags have five bits for it.
pub(super) const MAX_PROBES: usize = 32;

/// The number of lines per set, by the number of words per state.
pub(super) const fn lines_per_set(words: usize) -> usize {
    [1, 1, 2, 2, 5][words]
}
/// The number of slots per set, by the number of words per state.
pub(super) const fn slots_per_set(words: usize) -> usize {
    [4, 4, 5, 4, 8][words]
}
/// The number of words that hold the tags of a set, by the number of words per state.
const fn tag_words(words: usize) -> usize {
    slots_per_set(words) - 1
}

/// The word with the last tag of a set whose states have two words. It is in the second line, so that
/// comparing the tags fetches both.
const LAST_TAG_OF_TWO: usize = 14;

/// Headers hold epochs modulo this number. No set is more than one epoch behind.
const EPOCHS: u64 = 1 << 16;

/// The header of a set: lock, probe length, epoch, denied slots, version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header(u64);

impl Header {
    const LOCKED: u64 = 1;
    const PROBE_LEN_SHIFT: u32 = 1;
    const PROBE_LEN_MASK: u64 = MAX_PROBES as u64 - 1;
    const EPOCH_SHIFT: u32 = 6;
    const EPOCH_MASK: u64 = (EPOCHS - 1) << Self::EPOCH_SHIFT;
    const DENIED_SHIFT: u32 = Self::EPOCH_SHIFT + EPOCHS.ilog2();
    const VERSION_UNIT: u64 = 1 << Self::DENIED_SHIFT << MAX_SLOTS;

    const fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    /// The last probe at which a key of this home set may be stored.
    pub(super) const fn probe_len(self) -> usize {
        (self.0 >> Self::PROBE_LEN_SHIFT & Self::PROBE_LEN_MASK) as usize
    }

    pub(super) const fn with_probe_len(self, probe_len: usize) -> Self {
        Self(
            self.0 & !(Self::PROBE_LEN_MASK << Self::PROBE_LEN_SHIFT)
                | (probe_len as u64) << Self::PROBE_LEN_SHIFT,
        )
    }

    /// The epoch whose algorithm packed the states of this set, modulo [`EPOCHS`].
    #[inline]
    pub(super) const fn epoch(self) -> u64 {
        (self.0 & Self::EPOCH_MASK) >> Self::EPOCH_SHIFT
    }

    /// Whether the last request of the key in this slot was denied.
    #[inline]
    pub(super) const fn is_denied(self, slot: usize) -> bool {
        self.0 >> Self::DENIED_SHIFT >> slot & 1 != 0
    }

    #[inline]
    const fn with_denied(self, slot: usize, denied: bool) -> Self {
        let bit = 1 << Self::DENIED_SHIFT << slot;
        Self(if denied { self.0 | bit } else { self.0 & !bit })
    }

    pub(super) const fn with_epoch(self, epoch: u64) -> Self {
        Self(self.0 & !Self::EPOCH_MASK | epoch << Self::EPOCH_SHIFT & Self::EPOCH_MASK)
    }

    /// Whether the set is unlocked and in `epoch`.
    #[inline]
    const fn is_ready(self, epoch: u64) -> bool {
        (self.0 ^ epoch << Self::EPOCH_SHIFT) & (Self::LOCKED | Self::EPOCH_MASK) == 0
    }

    /// Whether the states of this set were packed in `epoch`.
    pub(super) const fn is_of_epoch(self, epoch: u64) -> bool {
        self.epoch() == epoch & (EPOCHS - 1)
    }
}

/// The largest number of words per state.
pub(super) const MAX_WORDS: usize = 4;

/// The words of a state, padded with zeros.
pub(super) type SlotWords = [u64; MAX_WORDS];

/// One set.
///
/// The number of words per state is a field and not a type parameter, so that the cold paths are
/// compiled once for all widths. On the fast path all calls are inlined and it is a constant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set<'a> {
    lines: &'a [CacheLine],
    state_words: usize,
}

/// A consistent copy of a whole set.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) header: Header,
    pub(super) tags: [u64; MAX_SLOTS],
    pub(super) states: [SlotWords; MAX_SLOTS],
}

const TAG_MASK: u64 = (1 << 48) - 1;

impl<'a> Set<'a> {
    #[inline]
    pub(super) fn at_index(table: &'a [CacheLine], index: usize, state_words: usize) -> Self {
        Self::at_line(table, index * lines_per_set(state_words), state_words)
    }

    /// The set whose first line is `first`.
    #[inline]
    pub(super) fn at_line(table: &'a [CacheLine], first: usize, state_words: usize) -> Self {
        Self {
            lines: &table[first..first + lines_per_set(state_words)],
            state_words,
        }
    }

    pub(super) const fn slots(&self) -> usize {
        slots_per_set(self.state_words)
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.lines[at / 8].0[at % 8]
    }

    #[inline]
    fn header(&self) -> &AtomicU64 {
        self.word(0)
    }

    #[inline]
    pub(super) fn load_header(&self) -> Header {
        Header(self.header().load(Ordering::Acquire))
    }

    #[inline]
    pub(super) const fn state_words(&self) -> usize {
        self.state_words
    }

    #[inline]
    fn tag_words(&self) -> usize {
        tag_words(self.state_words)
    }

    #[inline]
    fn tag_word(&self, at: usize) -> &AtomicU64 {
        match (self.state_words, at) {
            (2, 3) => self.word(LAST_TAG_OF_TWO),
            _ => self.word(1 + at),
        }
    }

    #[inline]
    fn state_word(&self, slot: usize, at: usize) -> &AtomicU64 {
        match self.state_words {
            // Both are in one line.
            2 => self.word(4 + 2 * slot + at),
            words => self.word(1 + self.tag_words() + slot * words + at),
        }
    }

    /// Compares all tags without a branch: the slot of a key is random, so a branch would often be
    /// mispredicted. The results are bits of a number, because the compiler turns a choice between
    /// values into a branch.
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        let (mut found, mut pieces) = (0_usize, 0);
        for at in 0..self.tag_words() {
            let word = self.tag_word(at).load(Ordering::Relaxed);
            found |= usize::from(word & TAG_MASK == tag) << at;
            if at < 3 {
                pieces |= word >> 48 << (16 * at);
            }
        }
        found |= usize::from(pieces == tag) << self.tag_words();
        (found != 0).then_some(found.trailing_zeros() as usize)
    }

    #[inline]
    fn read_state(&self, slot: usize, words: &mut [u64]) {
        for (at, word) in words.iter_mut().enumerate().take(self.state_words) {
            *word = self.state_word(slot, at).load(Ordering::Relaxed);
        }
    }

    fn state(&self, slot: usize) -> SlotWords {
        let mut words = SlotWords::default();
        self.read_state(slot, &mut words);
        words
    }

    /// Reads the slot with this tag without retrying. `None` if there is none, if the set is being
    /// written, or if it is in another epoch.
    #[expect(
        clippy::inline_always,
        reason = "the result is several words, which would be returned in memory"
    )]
    #[inline(always)]
    pub(super) fn try_read<const W: usize>(
        &self,
        tag: u64,
        epoch: u64,
    ) -> Option<(Header, usize, [u64; W])> {
        let header = self.load_header();
        if !header.is_ready(epoch) {
            return None;
        }
        // Fetches all lines of the set in parallel, because no load depends on another. Of two-word
        // states, each line holds tags.
        if self.state_words != 2 {
            for line in 1..lines_per_set(self.state_words) {
                std::hint::black_box(self.word(8 * line).load(Ordering::Relaxed));
            }
        }
        let slot = self.find(tag)?;
        let mut state = [0; W];
        self.read_state(slot, &mut state);
        self.is_unchanged(header).then_some((header, slot, state))
    }

    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn read_unvalidated(&self, tag: u64) -> Option<SlotWords> {
        self.load_header();
        self.find(tag).map(|slot| self.state(slot))
    }

    /// Repeats `read` until no write happened during it.
    fn read_consistent<T>(&self, mut read: impl FnMut() -> T) -> (Header, T) {
        let mut turns = 0;
        loop {
            let header = self.load_header();
            if header.is_locked() {
                backoff(&mut turns);
                continue;
            }
            let result = read();
            if self.is_unchanged(header) {
                return (header, result);
            }
        }
    }

    /// Reads the slot with this tag, if there is one.
    pub(super) fn lookup(&self, tag: u64) -> (Header, Option<(usize, SlotWords)>) {
        self.read_consistent(|| self.find(tag).map(|slot| (slot, self.state(slot))))
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        (snapshot.header, ()) = self.read_consistent(|| {
            snapshot.tags = self.load_tags();
            for (slot, words) in snapshot.states.iter_mut().enumerate().take(self.slots()) {
                self.read_state(slot, words);
            }
        });
        snapshot
    }

    /// Whether nothing was written since `header` was read.
    #[inline]
    pub(super) fn is_unchanged(&self, header: Header) -> bool {
        // Pairs with the fence in `try_lock`: if a word was read that was written since, the load below
        // sees the changed header.
        fence(Ordering::Acquire);
        self.header().load(Ordering::Relaxed) == header.0
    }

    fn load_tags(&self) -> [u64; MAX_SLOTS] {
        let (mut tags, mut pieces) = ([0; MAX_SLOTS], 0);
        for (at, tag) in tags.iter_mut().enumerate().take(self.tag_words()) {
            let word = self.tag_word(at).load(Ordering::Relaxed);
            *tag = word & TAG_MASK;
            if at < 3 {
                pieces |= word >> 48 << (16 * at);
            }
        }
        tags[self.tag_words()] = pieces;
        tags
    }

    /// Records that the last request of the key in this slot was denied, unless another thread has
    /// written the set since `header` was read. Then the next denial records it.
    #[cold]
    pub(super) fn mark_denied(self, header: Header, slot: usize) {
        if let Some(mut locked) = self.try_lock(header) {
            locked.set_denied(slot, true);
        }
    }

    /// Locks the set if nothing was written since `header` was read.
    #[inline]
    pub(super) fn try_lock(&self, header: Header) -> Option<SetGuard<'a>> {
        let locked = header.0 | Header::LOCKED;
        self.header()
            .compare_exchange(header.0, locked, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // Must precede the writes, so that a reader that sees one of them also sees `LOCKED`.
        fence(Ordering::Release);
        Some(SetGuard {
            set: *self,
            next_header: header,
        })
    }

    /// Locks the set. The caller must make sure that no other thread changes the caller's slot.
    pub(super) fn lock(&self) -> SetGuard<'a> {
        loop {
            // Reads only the header, because no tag is all ones.
            let (header, _) = self.lookup(u64::MAX);
            if let Some(locked) = self.try_lock(header) {
                return locked;
            }
        }
    }
}

/// A locked set. Dropping it unlocks the set with the next version.
#[derive(Debug)]
pub(super) struct SetGuard<'a> {
    set: Set<'a>,
    /// The header to unlock with. `drop` advances its version.
    next_header: Header,
}

impl SetGuard<'_> {
    #[inline]
    pub(super) fn write_state(&mut self, slot: usize, words: &[u64]) {
        self.set_denied(slot, false);
        for (at, word) in words.iter().enumerate().take(self.set.state_words) {
            self.set
                .state_word(slot, at)
                .store(*word, Ordering::Relaxed);
        }
    }

    /// Records whether the last request of the key in this slot was denied.
    #[inline]
    pub(super) fn set_denied(&mut self, slot: usize, denied: bool) {
        self.next_header = self.next_header.with_denied(slot, denied);
    }

    pub(super) fn write_tag(&mut self, slot: usize, tag: u64) {
        let keep = |at: usize, mask: u64, bits: u64| {
            let word = self.set.tag_word(at);
            word.store(
                word.load(Ordering::Relaxed) & !mask | bits,
                Ordering::Relaxed,
            );
        };
        if slot < self.set.tag_words() {
            keep(slot, TAG_MASK, tag);
        } else {
            for at in 0..3 {
                keep(at, !TAG_MASK, tag >> (16 * at) << 48);
            }
        }
    }

    pub(super) fn set_probe_len(&mut self, probe_len: usize) {
        self.next_header = self.next_header.with_probe_len(probe_len);
    }

    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.next_header = self.next_header.with_epoch(epoch);
    }
}

impl Drop for SetGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let next = self.next_header.0.wrapping_add(Header::VERSION_UNIT);
        self.set.header().store(next, Ordering::Release);
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests;
