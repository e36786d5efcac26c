//! A line of slots, which are read together: a few states, and 40 bits for each of them.

use std::array::from_fn;

/// A key may use so many lines.
pub(super) const WINDOW: usize = 32;
/// So many low bits of a hash are stored. The distance of the line from the home of the key is above them.
pub(super) const FINGERPRINT_BITS: u32 = 34;
/// In the last bits of a slot: the last request was denied.
const DENIED: u8 = 1 << 7;
/// The same in the [`marked_tag`](Line::marked_tag).
pub(super) const DENIED_MARK: u64 = (DENIED as u64) << 32;

/// How a slot keeps a state.
pub(super) trait Hold<S>: Clone + Send {
    fn vacant(fresh: impl FnOnce() -> S) -> Self;

    fn vacate(&mut self) {}

    fn put(&mut self, state: S);

    /// The state of a slot in use.
    fn get(&self) -> &S;

    fn get_mut(&mut self) -> &mut S;
}

/// In the slot itself.
#[derive(Clone)]
pub(super) struct Inline<S>(S);

impl<S: Clone + Send> Hold<S> for Inline<S> {
    fn vacant(fresh: impl FnOnce() -> S) -> Self {
        Self(fresh())
    }

    #[inline]
    fn put(&mut self, state: S) {
        self.0 = state;
    }

    #[inline]
    fn get(&self) -> &S {
        &self.0
    }

    #[inline]
    fn get_mut(&mut self) -> &mut S {
        &mut self.0
    }
}

/// Outside of the table.
#[derive(Clone)]
pub(super) struct Boxed<S>(Option<Box<S>>);

impl<S: Clone + Send> Hold<S> for Boxed<S> {
    fn vacant(_: impl FnOnce() -> S) -> Self {
        Self(None)
    }

    fn vacate(&mut self) {
        self.0 = None;
    }

    fn put(&mut self, state: S) {
        self.0 = Some(Box::new(state));
    }

    #[inline]
    fn get(&self) -> &S {
        self.0.as_deref().expect("a slot in use has a state")
    }

    #[inline]
    fn get_mut(&mut self) -> &mut S {
        self.0.as_deref_mut().expect("a slot in use has a state")
    }
}

/// `N` slots. Three states of 16 bytes take 64 bytes, which is a cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Line<H, const N: usize> {
    states: [H; N],
    /// The low and the high bits of the tags. They are zero if the slot is empty.
    low: [u32; N],
    high: [u8; N],
    /// The greatest distance of a key whose home this line is.
    pub(super) reach: u8,
}

impl<H, const N: usize> Line<H, N> {
    pub(super) fn vacant<S>(fresh: impl Fn() -> S) -> Self
    where
        H: Hold<S>,
    {
        Self {
            states: from_fn(|_| H::vacant(&fresh)),
            low: [0; N],
            high: [0; N],
            reach: 0,
        }
    }

    #[inline]
    fn tag(&self, slot: usize) -> u64 {
        u64::from(self.low[slot]) | u64::from(self.high[slot] & !DENIED) << 32
    }

    #[inline]
    pub(super) fn find(&self, tag: u64) -> Option<usize> {
        (0..N).find(|slot| self.tag(*slot) == tag)
    }

    pub(super) fn empty_slot(&self) -> Option<usize> {
        self.find(0)
    }

    /// The tag of a slot in use, and whether the last request was denied, as one number.
    pub(super) fn marked_tag(&self, slot: usize) -> u64 {
        u64::from(self.low[slot]) | u64::from(self.high[slot]) << 32
    }

    /// Whether a key at this distance from its home is in it.
    pub(super) fn has_distance(&self, distance: usize) -> bool {
        let tagged = |slot| self.tag(slot) >> FINGERPRINT_BITS == distance as u64;
        (0..N).any(tagged)
    }

    #[inline]
    pub(super) fn is_denied(&self, slot: usize) -> bool {
        self.high[slot] & DENIED != 0
    }

    #[inline]
    pub(super) fn set_denied(&mut self, slot: usize, is_denied: bool) {
        let rest = self.high[slot] & !DENIED;
        self.high[slot] = rest | if is_denied { DENIED } else { 0 };
    }

    #[inline]
    pub(super) fn state<S>(&self, slot: usize) -> &S
    where
        H: Hold<S>,
    {
        self.states[slot].get()
    }

    #[inline]
    pub(super) fn state_mut<S>(&mut self, slot: usize) -> &mut S
    where
        H: Hold<S>,
    {
        self.states[slot].get_mut()
    }

    /// The slots in use.
    pub(super) fn used(&self) -> impl Iterator<Item = usize> + use<H, N> {
        let used: [bool; N] = from_fn(|slot| self.tag(slot) != 0);
        (0..N).filter(move |slot| used[*slot])
    }

    #[expect(clippy::cast_possible_truncation, reason = "a tag has 39 bits")]
    pub(super) fn put<S>(&mut self, slot: usize, tag: u64, state: S)
    where
        H: Hold<S>,
    {
        self.states[slot].put(state);
        self.low[slot] = tag as u32;
        self.high[slot] = (tag >> 32) as u8;
    }

    pub(super) fn clear<S>(&mut self, slot: usize)
    where
        H: Hold<S>,
    {
        self.states[slot].vacate();
        (self.low[slot], self.high[slot]) = (0, 0);
    }
}

/// How many lines after the home of a key its line of this number is, of so many. They lie further and further
/// apart, so that a run of full lines does not grow at its end. A small table has few, and a key may use all of them.
#[inline]
pub(super) const fn offset(number: usize, lines: usize) -> usize {
    if lines > WINDOW {
        number * (number + 1) / 2
    } else {
        number
    }
}

/// What is stored of a key with this hash, at this distance from its home. Never zero.
#[inline]
pub(super) const fn tag(hash: u64, distance: usize) -> u64 {
    let fingerprint = hash & ((1 << FINGERPRINT_BITS) - 1);
    // Zero marks an empty slot.
    let fingerprint = if fingerprint == 0 { 1 } else { fingerprint };
    fingerprint | (distance as u64) << FINGERPRINT_BITS
}
