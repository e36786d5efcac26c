//! Random operations on a tiny table and on an unbounded map return the same until the table counts
//! an eviction.
#![no_main]

use std::collections::HashMap;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tower_throttle::algorithm::Algorithm;
use tower_throttle::{
    FixedWindow, LeakyBucket, Local, ManualClock, Quota, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, WarmUp,
    clock::{Clock, Tick},
};

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    limit: u32,
    period: u64,
    capacity: u8,
    ops: Vec<(u8, u8, u64, u64)>,
}

fuzz_target!(|input: Input| {
    let limit = u64::from(input.limit).max(1);
    let Ok(quota) = Quota::try_per(limit, Duration::from_nanos(input.period)) else {
        return;
    };
    match input.kind % 9 {
        0 => run(TokenBucket::new(quota), &input),
        1 => run(LeakyBucket::new(quota).queue(3), &input),
        2 => run(FixedWindow::new(quota), &input),
        3 => run(FixedWindow::new(quota).anchored(), &input),
        4 => run(SlidingWindow::new(quota), &input),
        5 => run(SlidingGrid::new(quota), &input),
        6 => run(SlidingLog::new(quota), &input),
        7 => match WarmUp::try_new(quota, Duration::from_nanos(input.period)) {
            Ok(warm) => run(warm.queue(3), &input),
            Err(_) => (),
        },
        _ => run((TokenBucket::new(quota), FixedWindow::new(quota)), &input),
    }
});

fn run<A: Algorithm>(algorithm: A, input: &Input) {
    if algorithm.validate().is_err() {
        return;
    }
    let clock = ManualClock::new();
    let local = Local::new(algorithm.clone())
        .with_clock(clock.clone())
        .capacity(usize::from(input.capacity).max(1));
    let mut states = HashMap::new();
    for (kind, key, gap, cost) in &input.ops {
        clock.set(Tick::from_nanos(
            clock.now().as_nanos().saturating_add(*gap >> (gap % 64)),
        ));
        let (now, cost) = (clock.now(), *cost >> (cost % 64));
        if now == Tick::MAX {
            // The last moment: states that would become forgettable later are forgettable now.
            return;
        }
        let state = states.entry(*key).or_insert_with(|| algorithm.fresh(now));
        let same = match kind % 6 {
            0 => {
                local.refund(key, cost);
                algorithm.refund(state, now, now, cost);
                true
            }
            1 => local.charge(key, cost) == algorithm.charge(state, now, cost),
            2 => local.peek_n(key, cost) == algorithm.peek(state, now, cost),
            3 => {
                local.reset(key);
                *state = algorithm.fresh(now);
                true
            }
            _ => local.check_n(key, cost) == algorithm.decide(state, now, cost),
        };
        let stats = local.stats();
        assert!(same || stats.evicted + stats.denied > 0, "{algorithm:?}");
    }
}
