//! The layout of headers and sets.

use super::*;

type Fields = (bool, usize, u64, [bool; MAX_SLOTS], u64);

fn fields(header: Header) -> Fields {
    let denied = std::array::from_fn(|slot| header.is_denied(slot));
    let version = header.0 / Header::VERSION_UNIT;
    (
        header.is_locked(),
        header.probe_len(),
        header.epoch(),
        denied,
        version,
    )
}

const STARTS: [Header; 3] = [Header(0), Header(0x5555_5555_5555_5555), Header(!0)];

#[test]
fn a_field_of_a_header_is_written_without_the_others() {
    let probe_lens = 0..MAX_PROBES;
    for (start, probe_len) in STARTS
        .iter()
        .flat_map(|h| probe_lens.clone().map(move |p| (h, p)))
    {
        let (locked, _, epoch, denied, version) = fields(*start);
        let expected = (locked, probe_len, epoch, denied, version);
        assert_eq!(fields(start.with_probe_len(probe_len)), expected);
    }
    for start in STARTS {
        let (locked, probe_len, _, denied, version) = fields(start);
        for epoch in [0, 1, EPOCHS / 2, EPOCHS - 1] {
            let expected = (locked, probe_len, epoch, denied, version);
            assert_eq!(fields(start.with_epoch(epoch)), expected);
            assert_eq!(fields(start.with_epoch(epoch + EPOCHS)), expected);
        }
    }
}

#[test]
fn a_slot_is_marked_as_denied_without_the_others() {
    for (start, slot) in STARTS
        .iter()
        .flat_map(|h| (0..MAX_SLOTS).map(move |s| (h, s)))
    {
        for denied in [false, true] {
            let mut expected = fields(*start);
            expected.3[slot] = denied;
            let marked = start.with_denied(slot, denied);
            assert_eq!(fields(marked), expected);
            assert_eq!(marked.with_denied(slot, denied), marked);
        }
    }
}

#[test]
fn the_version_of_a_header_takes_the_34_high_bits() {
    assert_eq!(Header::VERSION_UNIT, 1 << (64 - 34));
    let set = [CacheLine::default()];
    let set = Set::at_index(&set, 0, 1);
    set.header().store(!Header::LOCKED, Ordering::Relaxed);
    let (before, _) = set.lookup(1);
    drop(set.try_lock(before));
    let (locked, probe_len, epoch, denied, _) = fields(before);
    let (after, _) = set.lookup(1);
    // The last version is followed by the first.
    assert_eq!(fields(after), (locked, probe_len, epoch, denied, 0));
    assert!(set.is_unchanged(after) && !set.is_unchanged(before));
    assert!(set.try_lock(before).is_none());
}

#[test]
fn a_header_is_ready_if_it_is_unlocked_and_in_the_epoch() {
    for epoch in [0, 1, 7, EPOCHS - 1] {
        for start in STARTS {
            let header = start.with_epoch(epoch);
            let unlocked = Header(header.0 & !Header::LOCKED);
            assert!(unlocked.is_ready(epoch) && unlocked.is_ready(epoch + EPOCHS));
            assert!(!unlocked.is_ready(epoch + 1) && !unlocked.is_ready(epoch ^ 1 << 15));
            let locked = Header(unlocked.0 | Header::LOCKED);
            assert!(locked.is_locked() && !unlocked.is_locked());
            assert!(!locked.is_ready(epoch));
            assert!(header.is_of_epoch(epoch) && header.is_of_epoch(epoch + EPOCHS));
            assert!(!header.is_of_epoch(epoch + 1));
        }
    }
}

/// Writes to one slot after the other, and reads all of them each time.
fn check_slots<const W: usize>() {
    let lines: Vec<_> = (0..3 * lines_per_set(W))
        .map(|_| CacheLine::default())
        .collect();
    let tag_of = |slot: usize| TAG_MASK - 0x1_0001_0001 * slot as u64;
    for at in 0..3 {
        let set = Set::at_index(&lines, at, W);
        assert_eq!((set.slots(), set.state_words()), (slots_per_set(W), W));
        let mut expected = [SlotWords::default(); MAX_SLOTS];
        for slot in 0..set.slots() {
            assert_eq!(set.lookup(tag_of(slot)).1, None);
            let (header, _) = set.lookup(0);
            let mut words = SlotWords::default();
            for (word, number) in words.iter_mut().zip(1..=W) {
                *word = !((at * 100 + slot * 10 + number) as u64);
            }
            expected[slot] = words;
            let mut guard = set.try_lock(header).expect("an unlocked set");
            guard.write_state(slot, &words);
            guard.write_tag(slot, tag_of(slot));
            assert!(set.try_read::<W>(tag_of(slot), 0).is_none(), "it is locked");
            drop(guard);
            let snapshot = set.snapshot();
            assert_eq!(snapshot.states, expected);
            for (other, state) in expected.iter().enumerate().take(set.slots()) {
                let tag = if other <= slot { tag_of(other) } else { 0 };
                assert_eq!(snapshot.tags[other], tag);
                let kept = (other <= slot).then_some((other, *state));
                assert_eq!(set.lookup(tag_of(other)).1, kept);
                let read = set.try_read::<W>(tag_of(other), 0);
                assert_eq!(read.map(|(_, slot, _)| slot), kept.map(|(slot, _)| slot));
                assert!(read.is_none_or(|(.., words)| words[..] == state[..W]));
            }
        }
        // A tag is replaced as a whole.
        for slot in 0..set.slots() {
            let (header, _) = set.lookup(0);
            set.try_lock(header)
                .expect("an unlocked set")
                .write_tag(slot, 1 + slot as u64);
        }
        let tags = set.snapshot().tags;
        assert!((0..set.slots()).all(|slot| tags[slot] == 1 + slot as u64));
    }
}

#[test]
fn a_slot_of_every_width_keeps_its_tag_and_its_state() {
    check_slots::<1>();
    check_slots::<2>();
    check_slots::<3>();
    check_slots::<4>();
}
