//! Random operations and changes of quota on a tiny table and on an unbounded map return the same
//! until the table counts an eviction. After evictions, a table still admits no more than one limit
//! per slot.
//!
//! Shows promises 29, 46.
#![no_main]

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tower_throttle::algorithm::{Algorithm, Cost, GiveBack, IntoAlgorithm};
use tower_throttle::{
    AnyAlgorithm, FixedWindow, LeakyBucket, Local, Lockout, ManualClock, Quota, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket, WarmUp,
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

/// What one slot may admit, from the promise of its algorithm.
struct SlotBound {
    /// The largest burst of all quotas, and the largest rate, as cost per nanoseconds.
    burst: u128,
    rate: (u128, u128),
    /// Of a fixed window: the shortest one.
    window: Option<u128>,
}

impl SlotBound {
    fn new(quota: Quota, is_window: bool) -> Self {
        let mut bound = Self {
            burst: 0,
            rate: (0, 1),
            window: is_window.then_some(u128::MAX),
        };
        bound.add(quota);
        bound
    }

    fn add(&mut self, quota: Quota) {
        let (limit, period) = (u128::from(quota.limit()), quota.period().as_nanos());
        self.burst = self.burst.max(u128::from(quota.capacity())).max(limit);
        if limit * self.rate.1 > self.rate.0 * period {
            self.rate = (limit, period);
        }
        self.window = self.window.map(|window| window.min(period));
    }

    /// At most, in `span` nanoseconds with `changes` of quota.
    fn most(&self, span: u128, changes: u128) -> u128 {
        match self.window {
            // Of each window that the span touches. A change may begin another one.
            Some(window) => self.burst * (span / window + 2 + changes),
            None => self.burst + (span * self.rate.0).div_ceil(self.rate.1),
        }
    }
}

fuzz_target!(|input: Input| {
    let limit = u64::from(input.limit).max(1);
    let Ok(quota) = Quota::try_from((limit, Duration::from_nanos(input.period))) else {
        return;
    };
    let bucket = || Some(SlotBound::new(quota, false));
    let window = || Some(SlotBound::new(quota, true));
    // The saved inputs are below.
    let kind = match input.kind {
        246.. => 9,
        kind => kind % 9,
    };
    match kind {
        0 => run(TokenBucket::new(quota), &input, bucket()),
        1 => run(LeakyBucket::new(quota), &input, None),
        2 => run(FixedWindow::new(quota), &input, window()),
        3 => run(FixedWindow::new(quota).anchored(), &input, window()),
        4 => run(SlidingWindow::new(quota), &input, None),
        5 => run(SlidingGrid::new(quota), &input, None),
        6 => run(SlidingLog::new(quota), &input, window()),
        7 => {
            let text = format!("warm_up {quota}; warm_up={}ns", input.period);
            if text.parse::<AnyAlgorithm>().is_ok() {
                let warm = WarmUp::new(quota, Duration::from_nanos(input.period));
                run(warm, &input, None);
            }
        }
        9 => run(Lockout::new(quota).block(quota.period()), &input, None),
        _ => run(
            (TokenBucket::new(quota), FixedWindow::new(quota)).into_algorithm(),
            &input,
            None,
        ),
    }
});

fn run<A: Algorithm>(mut algorithm: A, input: &Input, mut bound: Option<SlotBound>) {
    if algorithm.validate().is_err() {
        return;
    }
    let clock = ManualClock::new();
    let local = Local::new(algorithm.clone())
        .with_clock(clock.clone())
        .capacity(usize::from(input.capacity % 64).max(1));
    let mut states = HashMap::new();
    let start = clock.now();
    let (mut kept, mut changes, mut used) = (0_u128, 0, HashSet::new());
    for (kind, key, gap, cost) in &input.ops {
        clock.set(Tick::from_nanos(
            clock.now().as_nanos().saturating_add(*gap >> (gap % 64)),
        ));
        let (now, cost) = (clock.now(), *cost >> (cost % 64));
        // Few keys, so that an operation finds a state of an earlier one.
        let key = &(key % 8);
        if now == Tick::MAX {
            // The last moment: states that would become forgettable later are forgettable now.
            return;
        }
        if kind % 8 == 7 {
            let period = Duration::from_nanos(input.period.max(1));
            let quota = Quota::try_from((cost.max(1), period));
            if let Some(next) = quota.ok().and_then(|to| algorithm.with_quota(to).ok()) {
                if local.set_algorithm(next.clone()).is_ok() {
                    retune(&mut states, &algorithm, &next, now);
                    changes += 1;
                    if let Some(bound) = &mut bound {
                        bound.add(next.quota());
                    }
                    algorithm = next;
                }
            }
            continue;
        }
        used.insert(*key);
        let state = states.entry(*key).or_insert_with(|| algorithm.fresh(now));
        let same = match kind % 8 {
            0 => {
                local.refund(key, cost);
                let (units, at) = (cost, now);
                algorithm.refund(state, now, Cost { units, at }, GiveBack::Refund);
                // It may have given back what was kept.
                kept = kept.saturating_sub(cost.into());
                true
            }
            1 => local.charge(key, cost) == algorithm.charge(state, now, cost),
            2 => local.peek(key, cost) == algorithm.peek(state, now, cost),
            3 => {
                local.reset(key);
                *state = algorithm.fresh(now);
                // The key starts as unused.
                bound = None;
                true
            }
            // A whole limit, so that few admissions fill the slots.
            kind => {
                let cost = if kind == 4 {
                    algorithm.quota().limit()
                } else {
                    cost
                };
                let decision = local.check(key, cost);
                kept += u128::from(if decision.is_admitted() { cost } else { 0 });
                decision == algorithm.decide(state, now, cost)
            }
        };
        let stats = local.stats();
        let losses = stats.evicted + stats.denied + stats.lost_charges;
        assert!(same || losses > 0, "{algorithm:?}");
        // The lines of the table have four slots or fewer.
        let slots = (stats.table_bytes / 16).min(used.len()) as u128;
        if let Some(bound) = &bound {
            let most = slots * bound.most(now.since(start).as_nanos(), changes);
            assert!(kept <= most, "{kept} kept, {most} allowed: {algorithm:?}");
        }
    }
}

/// Changes the algorithm of all states. Those that have expired are dropped, as by the table.
fn retune<A: Algorithm>(states: &mut HashMap<u8, A::State>, from: &A, to: &A, now: Tick) {
    states.retain(|_, state| from.forgettable_at(state) > now);
    for state in states.values_mut() {
        to.rescale(state, from, now);
    }
}
