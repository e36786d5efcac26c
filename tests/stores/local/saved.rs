//! What keys have used, saved by one process and loaded by the next.

use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, io, thread};

use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
use tower_throttle::{
    All, AnyAlgorithm, FixedWindow, LeakyBucket, Limiter, Local, Lockout, Quota, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket, WarmUp,
    clock::{Clock, Tick},
    store::{SaveState, StateFile},
};

use crate::random::{Random, seeds};
use test_support::folder::Folder;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// A day of 2027, at noon.
const NOON: u64 = 20_820 * DAY + DAY / 2;

/// The clock of a process, and the wall clock of its machine.
#[derive(Clone, Debug)]
struct Machine(Arc<[AtomicU64; 2]>);

impl Machine {
    fn new(tick: u64, wall: u64) -> Self {
        Self(Arc::new([tick.into(), wall.into()]))
    }

    fn advance(&self, nanos: u64) {
        self.0.iter().for_each(|clock| {
            clock.fetch_add(nanos, Relaxed);
        });
    }
}

impl Clock for Machine {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0[0].load(Relaxed))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_nanos(self.0[1].load(Relaxed))
    }
}

type Table<A> = Local<A, Machine>;

fn table<A: Algorithm>(algorithm: &A, machine: &Machine) -> Table<A> {
    Local::new(algorithm.clone())
        .with_clock(machine.clone())
        .capacity(60)
}

fn saved<T: SaveState + ?Sized>(limit: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    limit.save(&mut bytes).expect("it has a form as bytes");
    bytes
}

/// Random requests of 20 keys.
fn use_at_random<A: Algorithm>(random: &mut Random, machine: &Machine, local: &Table<A>) {
    for _ in 0..100 {
        machine.advance(random.below(SECOND / 5));
        let (key, cost) = (random.below(20), 1 + random.below(3));
        match random.below(8) {
            0 => drop(local.charge(&key, cost)),
            1 => local.refund(&key, cost),
            _ => drop(local.check(&key, cost)),
        }
    }
}

/// The keys for which two tables decide differently.
fn differences<A: Algorithm>(one: &Table<A>, other: &Table<A>) -> Vec<u64> {
    let differs = |key: &u64| (1..4).any(|cost| one.peek(key, cost) != other.peek(key, cost));
    (0..20).filter(differs).collect()
}

/// How the clocks of the second process begin, given the span that has passed.
type Start = fn(&Machine, u64) -> Machine;

/// The keys that differ, and those that differ after more requests, of a table that was loaded from the other one
/// and of that one.
fn faults<A: Algorithm>(algorithm: &A, start: Start, passes: bool, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let old = Machine::new(NOON, NOON);
    let before = table(algorithm, &old);
    use_at_random(&mut random, &old, &before);
    let bytes = saved(&before);
    let span = random.below(3 * SECOND);
    let new = start(&old, span);
    let after = table(algorithm, &new);
    after.load(&mut &bytes[..]).expect("the same limit");
    if passes {
        old.advance(span);
    }
    let mut faults = differences(&before, &after);
    let seed = random.below(1 << 40);
    use_at_random(&mut Random::new(seed), &old, &before);
    use_at_random(&mut Random::new(seed), &new, &after);
    faults.extend(differences(&before, &after));
    faults
}

/// One machine, on which a process shows the wall clock.
fn same_zero(old: &Machine, span: u64) -> Machine {
    let [tick, wall] = [0, 1].map(|clock| old.0[clock].load(Relaxed) + span);
    Machine::new(tick, wall)
}

/// The clock of the new process counts from its start.
fn other_zero(old: &Machine, span: u64) -> Machine {
    Machine::new(DAY, old.0[1].load(Relaxed) + span)
}

/// The wall clock, and with it that of the new process, was set back.
fn wall_went_back(old: &Machine, span: u64) -> Machine {
    let [tick, wall] = [0, 1].map(|clock| old.0[clock].load(Relaxed) - DAY - span);
    Machine::new(tick, wall)
}

/// Calls `$check` with algorithms that do not know the time of day, and with ones whose windows do.
macro_rules! of_spans {
    ($check:expr) => {{
        let quota = Quota::per_second(5);
        let bucket = TokenBucket::new(quota.burst(9));
        $check(&bucket);
        $check(&bucket.debt(3));
        $check(&TokenBucket::new(Quota::per(7, Duration::from_secs(3))));
        $check(&LeakyBucket::new(quota));
        $check(&FixedWindow::new(quota).anchored());
        $check(&SlidingLog::new(quota));
        $check(&WarmUp::new(quota, Duration::from_secs(2)));
        $check(&Lockout::new(quota).block(Duration::from_secs(1)));
        $check(&Lockout::new(Quota::per_second(3)).after_denials_of(bucket));
        $check(&(bucket, SlidingLog::new(Quota::per_second(8))));
        $check(&All::new([bucket, TokenBucket::new(quota.burst(20))]));
        $check(&AnyAlgorithm::new(SlidingLog::new(quota)));
    }};
}

macro_rules! of_windows {
    ($check:expr) => {{
        let quota = Quota::per_second(5);
        $check(&FixedWindow::new(quota));
        $check(&FixedWindow::new(quota).offset(Duration::from_millis(300)));
        $check(&SlidingWindow::new(quota));
        $check(&SlidingGrid::new(quota));
        $check(&SlidingGrid::new(quota).cells(30).strict());
        $check(&TokenBucket::new(quota).refill_every(Duration::from_secs(1)));
        $check(&(TokenBucket::new(quota), FixedWindow::new(quota)));
        $check(&AnyAlgorithm::new(SlidingGrid::new(quota)));
        #[cfg(feature = "calendar")]
        $check(
            &tower_throttle::CalendarWindow::new(Quota::per_day(9), "Europe/Berlin")
                .expect("a zone"),
        );
    }};
}

fn find_no_fault<A>(algorithm: &A, start: Start, passes: bool)
where
    A: IntoAlgorithm + Clone,
{
    let algorithm = &algorithm.clone().into_algorithm();
    for seed in seeds(20) {
        let faults = faults(algorithm, start, passes, seed);
        assert!(faults.is_empty(), "{algorithm:?}, seed {seed}: {faults:?}");
    }
}

/// Shows promise 397.
#[test]
fn the_next_process_decides_as_this_one_would_have() {
    of_spans!(|algorithm| find_no_fault(algorithm, same_zero, true));
    of_windows!(|algorithm| find_no_fault(algorithm, same_zero, true));
}

/// Shows promise 397.
#[test]
fn a_process_whose_clock_counts_from_its_start_goes_on_as_well() {
    of_spans!(|algorithm| find_no_fault(algorithm, other_zero, true));
}

/// Shows promise 397.
#[test]
fn a_wall_clock_that_was_set_back_gives_back_nothing() {
    of_spans!(|algorithm| find_no_fault(algorithm, wall_went_back, false));
}

/// The reason for which a table refuses bytes, which leave it as it was.
fn refusal<A: Algorithm>(local: &Table<A>, bytes: &[u8]) -> String {
    let error = local.load(&mut { bytes }).expect_err("it does not fit");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(local.stats().live, 0);
    error.to_string()
}

/// Shows promise 397.
#[test]
fn what_does_not_fit_is_refused_with_its_reason_and_nothing_is_loaded() {
    let machine = Machine::new(NOON, NOON);
    let algorithm = FixedWindow::new(Quota::per_day(10));
    let before = table(&algorithm, &machine);
    assert!(before.check("key", 1).is_admitted());
    let bytes = saved(&before);

    let larger = Local::new(algorithm)
        .with_clock(machine.clone())
        .capacity(70);
    let reason = refusal(&larger, &bytes);
    assert_eq!(reason, "its capacity is 60, and that of the limit is 70");
    let other = table(&SlidingWindow::new(Quota::per_day(10)), &machine);
    assert_eq!(refusal(&other, &bytes), "it is of another algorithm");
    let any = |algorithm| table(&algorithm, &machine);
    let windows = any(AnyAlgorithm::new(algorithm));
    let buckets = any(AnyAlgorithm::new(TokenBucket::new(Quota::per_day(10))));
    assert_eq!(
        refusal(&buckets, &saved(&windows)),
        "it is of another algorithm"
    );
    let limiter = Limiter::new(algorithm);
    let after = table(&algorithm, &machine);
    assert_eq!(
        refusal(&after, &saved(&limiter)),
        "it is not a saved table of keys"
    );
    assert_eq!(
        refusal(&after, b"#!/bin/sh"),
        "it is no saved limit of tower-throttle"
    );
    let version = [b"tower-throttle saved\n".as_slice(), &[9], &bytes[22..]].concat();
    assert_eq!(
        refusal(&after, &version),
        "it has version 9, and this program reads 1"
    );

    // A table that has refused all this is as it was.
    after.load(&mut &bytes[..]).expect("the same limit");
    assert_eq!(after.peek("key", 1).remaining(), 9);
    let error = after.load(&mut &bytes[..]).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(
        error.to_string(),
        "the limit is in use; load it before the first request"
    );
}

/// A load that used the table while another thread was about to waited for that thread for ever.
#[test]
fn a_load_at_the_time_of_the_first_request_loads_or_says_that_it_is_late() {
    let bucket = TokenBucket::new(Quota::per_day(9));
    let before = Local::new(bucket).capacity(10);
    assert!(before.check("key", 4).is_admitted());
    let bytes = saved(&before);
    for _ in 0..300 {
        let after = Local::new(bucket).capacity(10);
        let loaded = thread::scope(|scope| {
            let uses = scope.spawn(|| after.peek("key", 1).remaining());
            let loaded = after.load(&mut &bytes[..]).is_ok();
            let _ = uses.join().expect("it does not panic");
            loaded
        });
        assert_eq!(after.peek("key", 1).remaining(), if loaded { 5 } else { 9 });
        assert!(after.load(&mut &bytes[..]).is_err(), "it is in use");
    }
}

fn used_log() -> (Table<SlidingLog>, Vec<u8>) {
    let machine = Machine::new(NOON, NOON);
    let log = SlidingLog::new(Quota::per_day(100));
    let before = table(&log, &machine);
    for _ in 0..9 {
        assert!(before.check("key", 2).is_admitted());
        assert!(before.check("other", 1).is_admitted());
        machine.advance(SECOND);
    }
    let bytes = saved(&before);
    (table(&log, &machine), bytes)
}

/// Shows promise 397.
#[test]
fn bytes_that_are_damaged_or_cut_off_are_refused() {
    let (after, bytes) = used_log();
    for place in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[place] ^= flip;
            refusal(&after, &damaged);
        }
        refusal(&after, &bytes[..place]);
    }
    refusal(&after, &[&bytes[..], &[0]].concat());
    after.load(&mut &bytes[..]).expect("it is whole");
    assert_eq!(after.peek("key", 1).remaining(), 82);
}

/// Shows promise 397.
#[test]
fn a_limiter_goes_on() {
    let of = |at| Limiter::new(TokenBucket::new(Quota::per_second(1).burst(9))).with_clock(at);
    let before = of(Machine::new(DAY, NOON));
    assert!(before.check(9).is_admitted());
    let bytes = saved(&before);
    let after = of(Machine::new(5, NOON + 4 * SECOND));
    after.load(&mut &bytes[..]).expect("the same limit");
    assert_eq!(after.peek(1).remaining(), 4);
    for end in 0..bytes.len() {
        let error = after.load(&mut &bytes[..end]).expect_err("cut off");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
    assert_eq!(after.peek(1).remaining(), 4);
    // With another quota, what was used is still used.
    let other = Limiter::new(TokenBucket::new(Quota::per_second(2).burst(18)));
    let other = other.with_clock(Machine::new(5, NOON + 4 * SECOND));
    other.load(&mut &bytes[..]).expect("the same algorithm");
    assert_eq!(other.peek(1).remaining(), 13);
    // Nothing of a day ago counts, and nothing of before the load.
    let later = of(Machine::new(5, NOON + DAY));
    assert!(later.check(7).is_admitted());
    later.load(&mut &bytes[..]).expect("the same limit");
    assert_eq!(later.peek(1).remaining(), 9);
}

/// Two limits in a file of this folder, by name.
fn two_limits(
    folder: &Path,
    capacity: usize,
) -> (Local<FixedWindow>, Arc<Limiter<TokenBucket>>, StateFile) {
    let users = Local::new(FixedWindow::new(Quota::per_day(10))).capacity(capacity);
    let jobs = Arc::new(Limiter::new(TokenBucket::new(Quota::per_day(10))));
    let states = StateFile::new(folder.join("limits"))
        .limit("users", users.clone())
        .limit("jobs", Arc::clone(&jobs));
    (users, jobs, states)
}

/// Shows promise 397.
#[test]
fn a_file_of_limits_is_replaced_at_once_and_loads_what_fits() -> io::Result<()> {
    let folder = Folder::new("states");
    let (users, jobs, states) = two_limits(&folder, 100);
    states.load()?; // there is none yet
    assert!(users.check("ann", 4).is_admitted() && jobs.check(3).is_admitted());
    states.save()?;
    let first = fs::read(folder.join("limits"))?;
    assert!(users.check("ann", 1).is_admitted());
    states.save()?;
    assert_eq!(fs::read_dir(&*folder)?.count(), 1, "no other file is left");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(folder.join("limits"))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let (users, jobs, states) = two_limits(&folder, 100);
    states.load()?;
    assert_eq!(
        (users.peek("ann", 1).remaining(), jobs.peek(1).remaining()),
        (5, 7)
    );

    let (users, jobs, states) = two_limits(&folder, 200);
    let error = states.load().expect_err("another capacity").to_string();
    assert_eq!(
        error,
        "users: its capacity is 100, and that of the limit is 200"
    );
    assert_eq!(
        (users.peek("ann", 1).remaining(), jobs.peek(1).remaining()),
        (10, 7)
    );

    // Cut off, as by a program that writes in place.
    fs::write(folder.join("limits"), &first[..first.len() / 2])?;
    let (users, jobs, states) = two_limits(&folder, 100);
    let error = states.load().expect_err("cut off").to_string();
    assert_eq!(error, "it is damaged or cut off");
    assert_eq!(
        (users.peek("ann", 1).remaining(), jobs.peek(1).remaining()),
        (10, 10)
    );
    Ok(())
}

/// A limit that cannot be saved.
struct Broken;

impl SaveState for Broken {
    fn save(&self, writer: &mut dyn io::Write) -> io::Result<()> {
        writer.write_all(b"half")?;
        Err(io::Error::other("no more"))
    }

    fn load(&self, _: &mut dyn io::Read) -> io::Result<()> {
        Ok(())
    }
}

/// Shows promise 397.
#[test]
fn a_save_that_fails_leaves_the_file_as_it_was() -> io::Result<()> {
    let folder = Folder::new("broken");
    let (.., states) = two_limits(&folder, 100);
    states.save()?;
    let before = fs::read(folder.join("limits"))?;
    let broken = StateFile::new(folder.join("limits")).limit("broken", Broken);
    let error = broken.save().expect_err("it is broken");
    assert_eq!(error.to_string(), "no more");
    assert_eq!(fs::read(folder.join("limits"))?, before);
    assert_eq!(fs::read_dir(&*folder)?.count(), 1);
    Ok(())
}
