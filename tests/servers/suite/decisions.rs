//! Every decision is that of the algorithm in process at the moment of its receipt.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack};
use tower_throttle::clock::Tick;
use tower_throttle::store::{Backend, Op, Receipt};
use tower_throttle::{Decision, Quota};

use super::{Store, algorithms, block_on, connected};
use crate::random::Random;

const CALLS: u64 = 60;

/// The first decision of a random trace that differs.
async fn difference<S: Store>(
    store: &S,
    policy: &str,
    algorithm: &AnyAlgorithm,
    random: &mut Random,
) -> Option<String> {
    let limit = store.limit(policy, algorithm.clone(), Duration::from_secs(30));
    let limit = connected(limit).await;
    let (mut stored, mut taken) = (None, Vec::<(u64, Receipt)>::new());
    let capacity = algorithm.quota().capacity();
    for call in 0..CALLS {
        let cost = 1 + random.below(capacity);
        let op = match random.below(10) {
            0 => Op::Peek(cost),
            1 => Op::Charge(cost.min(3)),
            2 if random.below(3) == 0 => Op::Reset,
            3 | 4 if !taken.is_empty() => {
                let at = usize::try_from(random.below(taken.len() as u64)).expect("an index");
                let (cost, receipt) = taken.swap_remove(at);
                Op::Refund(cost, receipt)
            }
            5 => Op::Take(cost),
            _ => Op::Take(1),
        };
        let part = u32::try_from(1 + random.below(20)).expect("small");
        store.advance(algorithm.quota().period() / part);
        let decision = limit.apply("key", op).await.expect("a decision");
        let at = |receipt: &Receipt| Tick::from_nanos(receipt.moment());
        let now = Tick::from_nanos(store.moment(&decision));
        // A peek and a denial store nothing, so a new key does not begin with them.
        let is_new = stored.is_none();
        let state = stored.get_or_insert_with(|| algorithm.fresh(now));
        let expected = match op {
            Op::Take(cost) => algorithm.decide(state, now, cost),
            Op::Peek(cost) => algorithm.peek(state, now, cost),
            Op::Refund(cost, receipt) => {
                algorithm.refund(state, now, Cost::new(cost, at(&receipt)), GiveBack::Refund);
                algorithm.peek(state, now, 0)
            }
            Op::Charge(cost) => {
                algorithm.charge(state, now, cost);
                algorithm.peek(state, now, 0)
            }
            _ => {
                *state = algorithm.fresh(now);
                algorithm.peek(state, now, 0)
            }
        };
        if let (Op::Take(cost), true) = (op, decision.is_admitted()) {
            taken.push((cost, decision.receipt()));
        }
        let figures = |decision: &Decision| {
            let whole = |span: Duration| span.as_nanos().div_ceil(u128::from(S::NANOS_PER_MOMENT));
            (
                decision.is_admitted(),
                decision.limit,
                decision.remaining(),
                decision.retry_after.map(whole),
                whole(decision.reset_after),
            )
        };
        if is_new && (matches!(op, Op::Peek(_)) || !expected.is_admitted()) {
            stored = None;
        }
        let (found, expected) = (figures(&decision), figures(&expected));
        if found != expected {
            return Some(format!(
                "{algorithm:?}: call {call}, {op:?}: {found:?}, not {expected:?}"
            ));
        }
    }
    None
}

/// What is wrong with a store. Periods of milliseconds end during a trace.
pub(crate) fn fault<S: Store>() -> Option<String> {
    let store = S::start();
    block_on(async {
        for seed in 0..4 {
            let random = &mut Random::new(seed + 1);
            let micros = [5_000, 40_000, 3_600_000_000][usize::try_from(seed % 3).expect("small")];
            let quota = Quota::per(1 + random.below(12), Duration::from_micros(micros));
            for (number, algorithm) in algorithms(quota).into_iter().enumerate() {
                let policy = format!("decisions-{seed}-{number}");
                let found = difference(&store, &policy, &algorithm, random).await;
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    })
}
