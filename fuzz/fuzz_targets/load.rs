//! Bytes with a valid check load or are refused, whatever they are; a table that has loaded some decides, and can be
//! saved and loaded again.
//!
//! Shows promise 397.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tower_throttle::{
    FixedWindow, LeakyBucket, Limiter, Local, Lockout, ManualClock, Quota, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
    algorithm::{Algorithm, IntoAlgorithm},
    clock::Tick,
    store::SaveState,
};

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    /// The moment of the clock, and what it is when the bytes are loaded.
    clocks: [u64; 2],
    /// Keys that are used before the table is saved.
    used: Vec<(u8, u8)>,
    /// Places of the saved bytes and what is written there.
    edits: Vec<(u16, u8)>,
    /// Where the bytes end.
    cut: Option<u16>,
    /// In place of all of them behind the version.
    replaced: Option<Vec<u8>>,
}

fuzz_target!(|input: Input| {
    let quota = Quota::per_minute(7);
    match input.kind % 9 {
        0 => run(&TokenBucket::new(quota), &input),
        1 => run(&LeakyBucket::new(quota), &input),
        2 => run(&FixedWindow::new(quota), &input),
        3 => run(&FixedWindow::new(quota).anchored(), &input),
        4 => run(&SlidingWindow::new(quota), &input),
        5 => run(&SlidingGrid::new(quota), &input),
        6 => run(&SlidingLog::new(quota), &input),
        7 => run(&WarmUp::new(quota, Duration::from_secs(9)), &input),
        _ => run(
            &(Lockout::new(quota), TokenBucket::new(quota)).into_algorithm(),
            &input,
        ),
    }
});

fn run<A: Algorithm>(algorithm: &A, input: &Input) {
    let [before, after] = input.clocks.map(|at| {
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(at));
        clock
    });
    let table = |clock: &ManualClock| {
        Local::new(algorithm.clone())
            .with_clock(clock.clone())
            .capacity(40)
    };
    let limiter = |clock: &ManualClock| Limiter::new(algorithm.clone()).with_clock(clock.clone());
    let (used, used_limiter) = (table(&before), limiter(&before));
    for (key, cost) in &input.used {
        before.advance(Duration::from_millis(u64::from(*key) * 16));
        let _ = used.check(key, u64::from(*cost % 8));
        let _ = used_limiter.check(u64::from(*cost % 8));
    }
    let loaded = table(&after);
    if loaded.load(&mut &altered(&used, input)[..]).is_ok() {
        for key in 0..8_u8 {
            let _ = (loaded.peek(&key, 1), loaded.check(&key, 2));
            loaded.charge(&key, 1);
            loaded.refund(&key, 3);
        }
        let _ = loaded.stats();
        let mut saved = Vec::new();
        loaded.save(&mut saved).expect("it has a form as bytes");
        table(&after).load(&mut &saved[..]).expect("its own bytes");
    }
    let loaded = limiter(&after);
    if loaded.load(&mut &altered(&used_limiter, input)[..]).is_ok() {
        let _ = (loaded.peek(1), loaded.check(2), loaded.charge(1));
    }
}

/// The bytes of a limit, changed, with a valid check.
fn altered(limit: &dyn SaveState, input: &Input) -> Vec<u8> {
    let mut bytes = Vec::new();
    limit.save(&mut bytes).expect("it has a form as bytes");
    bytes.truncate(bytes.len() - 8);
    if let Some(replaced) = &input.replaced {
        bytes.truncate(22);
        bytes.extend(replaced);
    }
    for (place, value) in &input.edits {
        let len = bytes.len();
        bytes[usize::from(*place) % len] = *value;
    }
    bytes.truncate(input.cut.map_or(bytes.len(), usize::from));
    let step = |check: u64, byte: &u8| (check ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let check = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    bytes.extend(check.to_le_bytes());
    bytes
}
