//! Random operations at random moments under a random policy: the laws in the documentation of
//! `algorithm` hold after each one.
//!
//! Shows promise 11.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack, reserve};
use tower_throttle::{
    FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    clock::Tick,
};

#[derive(Arbitrary, Debug)]
struct Input {
    policy: Policy,
    quota: AnyQuota,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
struct AnyQuota {
    limit: u64,
    period: u64,
    burst: u64,
}

#[derive(Arbitrary, Debug)]
enum Policy {
    FixedWindow {
        anchored: bool,
        offset: u64,
    },
    SlidingLog,
    SlidingWindow {
        offset: u64,
    },
    SlidingGrid {
        cells: u8,
        strict: bool,
        offset: u64,
    },
    TokenBucket {
        initial: Option<u64>,
    },
    LeakyBucket,
    WarmUp {
        over: u64,
        factor: u16,
    },
    Lockout {
        block: u64,
        forget: u64,
    },
}

#[derive(Arbitrary, Debug)]
enum Step {
    Pass(u64),
    /// Sets the time, possibly to a moment older than the state.
    At(u64),
    Check(u64),
    Reserve(u64, u64),
    /// A cost, and how long ago it was taken.
    Refund(u64, u64),
    Charge(u64),
    Retune(AnyQuota),
    Forget,
}

impl AnyQuota {
    fn quota(&self) -> Option<Quota> {
        let quota = Quota::try_from((self.limit, Duration::from_nanos(self.period))).ok()?;
        let period = Duration::from_nanos(self.period);
        Some(Quota::try_from((self.limit, period, self.burst)).unwrap_or(quota))
    }
}

impl Policy {
    fn algorithm(&self, quota: Quota) -> Option<AnyAlgorithm> {
        let span = Duration::from_nanos;
        Some(match *self {
            Self::FixedWindow { anchored, offset } => {
                let window = FixedWindow::new(quota).offset(span(offset));
                AnyAlgorithm::new(if anchored { window.anchored() } else { window })
            }
            Self::SlidingLog => AnyAlgorithm::new(SlidingLog::new(quota)),
            Self::SlidingWindow { offset } => {
                AnyAlgorithm::new(SlidingWindow::new(quota).offset(span(offset)))
            }
            Self::SlidingGrid {
                cells,
                strict,
                offset,
            } => {
                let grid = SlidingGrid::new(quota).offset(span(offset));
                let cells = Some(usize::from(cells));
                let in_range = |cells: &usize| (1..=60).contains(cells);
                let grid = grid.cells(cells.filter(in_range)?);
                AnyAlgorithm::new(if strict { grid.strict() } else { grid })
            }
            Self::TokenBucket { initial } => {
                let bucket = TokenBucket::new(quota);
                AnyAlgorithm::new(initial.map_or(bucket, |tokens| bucket.initial(tokens)))
            }
            Self::LeakyBucket => AnyAlgorithm::new(LeakyBucket::new(quota)),
            Self::WarmUp { over, factor } => {
                let text = format!("warm_up {quota}; warm_up={over}ns; cold_factor={factor}");
                text.parse::<AnyAlgorithm>().ok()?
            }
            Self::Lockout { block, forget } => {
                let lockout = Lockout::new(quota).block(span(block)).forget(span(forget));
                lockout.validate().ok()?;
                AnyAlgorithm::new(lockout)
            }
        })
    }
}

fuzz_target!(|input: Input| {
    let Some(mut algorithm) = input
        .quota
        .quota()
        .and_then(|quota| input.policy.algorithm(quota))
    else {
        return;
    };
    let mut now = Tick::ZERO;
    let mut state = algorithm.fresh(now);
    let mut latest = now;
    for step in input.steps.iter().take(64) {
        latest = latest.max(now);
        match *step {
            Step::Pass(ns) => now = now.plus(Duration::from_nanos(ns)),
            Step::At(ns) => now = Tick::from_nanos(ns),
            Step::Check(cost) => check(&algorithm, &mut state, now, cost),
            Step::Reserve(cost, most) => {
                let most = Duration::from_nanos(most);
                let decision = reserve(&algorithm, &mut state, now, cost, most);
                assert!(decision.wait().unwrap_or_default() <= most, "{decision:?}");
            }
            Step::Refund(cost, since) => {
                let before = algorithm.peek(&state, now, 0);
                let taken_at = Tick::from_nanos(now.as_nanos().saturating_sub(since));
                let (units, at) = (cost, taken_at);
                algorithm.refund(&mut state, now, Cost { units, at }, GiveBack::Refund);
                let after = algorithm.peek(&state, now, 0);
                assert!(
                    after.remaining() >= before.remaining(),
                    "{before:?} {after:?}"
                );
                assert!(after.remaining() <= after.limit, "{after:?}");
            }
            Step::Charge(cost) => {
                let before = algorithm.peek(&state, now, 0);
                let _ = algorithm.charge(&mut state, now, cost);
                let after = algorithm.peek(&state, now, 0);
                // At the last moment a block is over when it begins.
                assert!(
                    after.remaining() <= before.remaining() || latest == Tick::MAX,
                    "{before:?} {after:?}"
                );
            }
            Step::Retune(ref quota) => {
                let next = quota
                    .quota()
                    .and_then(|quota| algorithm.with_quota(quota).ok());
                if let Some(next) = next {
                    next.rescale(&mut state, &algorithm, now);
                    algorithm = next;
                }
            }
            Step::Forget => {
                now = now.max(algorithm.forgettable_at(&state));
                let fresh = algorithm.fresh(now);
                if now < Tick::MAX {
                    let (kept, forgotten) = (
                        algorithm.peek(&state, now, 1),
                        algorithm.peek(&fresh, now, 1),
                    );
                    assert_eq!(kept, forgotten);
                }
            }
        }
    }
});

/// Sends one request and checks the decision.
fn check(
    algorithm: &AnyAlgorithm,
    state: &mut <AnyAlgorithm as Algorithm>::State,
    now: Tick,
    cost: u64,
) {
    let before = state.clone();
    let peeked = algorithm.peek(state, now, cost);
    let decision = algorithm.decide(state, now, cost);
    assert_eq!(peeked.verdict, decision.verdict);
    assert_eq!(peeked.retry_after, decision.retry_after);
    assert!(decision.remaining() <= decision.limit, "{decision:?}");
    if !decision.is_denied() {
        return;
    }
    assert_eq!(peeked, decision, "a denial takes nothing");
    let Some(wait) = decision.retry_after else {
        assert!(cost > decision.limit, "{decision:?}");
        return;
    };
    assert!(!wait.is_zero(), "{decision:?}");
    let then = now.plus(wait);
    // A wait beyond `Tick::MAX` cannot be checked.
    if then.since(now) == wait && then < Tick::MAX {
        let tick = Duration::from_nanos(1);
        let earlier = algorithm.peek(&before, now.plus(wait - tick), cost);
        assert!(earlier.is_denied(), "{earlier:?} before {wait:?}");
        let later = algorithm.peek(&before, then, cost);
        assert!(!later.is_denied(), "{later:?} after {wait:?}");
    }
}
