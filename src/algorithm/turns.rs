//! How long a request waits behind others.

use std::time::Duration;

use super::Algorithm;
use crate::clock::{Tick, nanos};
use crate::decision::LineCosts;

/// How the turns of waiting requests follow each other. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turns {
    /// A request goes at most this long after the one before, or a period if that is longer.
    Vary(u64),
    /// As much as the limit passes in each such time. In one of them twice as much, if a window owed something.
    Slide(u64),
    /// What passes at a moment passes again after this time.
    Repeat(u64),
    /// A [`charge`](Algorithm::charge) makes later requests wait: a turn can be booked.
    Booked,
    /// The same, but what time returns is lost if there is no room for it: in a line they follow as in [`Vary`](Self::Vary).
    Steps(u64),
}

/// What [`Algorithm::expected_wait`] returns.
///
/// It is never too long for single units, each of which goes as soon as it can. Costs that do not fill the limit L use
/// more than half of it: two that did not fit into one period are more than L. And the first period, and a window that
/// slides, may leave as much as L unused. So costs of U go at the latest when single units of `2 (U + 2 L)` do.
pub(super) fn expected_wait<A: Algorithm>(
    algorithm: &A,
    state: &A::State,
    at: Tick,
    costs: LineCosts,
) -> Option<[Duration; 2]> {
    let (limit, each) = (algorithm.quota().limit(), costs.own.max(1));
    let fill = costs.are_equal && limit % each == 0;
    let mut left = costs.ahead.saturating_add(costs.own);
    match algorithm.capabilities().turns {
        Turns::Booked => {
            let mut after = state.clone();
            algorithm.charge(&mut after, at, costs.ahead);
            let decision = algorithm.decide(&mut after, at, costs.own);
            Some([decision.until_admitted()?; 2])
        }
        turns @ (Turns::Repeat(time) | Turns::Slide(time)) => {
            algorithm.peek(state, at, costs.own).until_admitted()?;
            let slides = turns == Turns::Slide(time);
            let most = left.saturating_add(2 * limit).saturating_mul(2);
            let most = if fill && !slides { left } else { most };
            if slides && left > limit {
                left = limit.max(left - limit);
            }
            // How long until single units of so much together have gone.
            let until_gone = |units| {
                let mut after = state.clone();
                let left = units - take_up_to(algorithm, &mut after, at, units);
                let cycles = left.saturating_sub(1) / limit;
                let rest = algorithm.peek(&after, at, left - cycles * limit);
                let cycles = Duration::from_nanos(time.saturating_mul(cycles));
                rest.until_admitted()
                    .unwrap_or_default()
                    .saturating_add(cycles)
            };
            let least = until_gone(left);
            let most = if most == left {
                least
            } else {
                until_gone(most)
            };
            Some([least, most])
        }
        Turns::Vary(longest) | Turns::Steps(longest) => {
            let own = algorithm.peek(state, at, costs.own);
            let first = own.until_admitted()?;
            let longest = longest.max(nanos(algorithm.quota().period()));
            let most = Duration::from_nanos(longest.saturating_mul(costs.ahead));
            let most = own.reset_after.saturating_add(most);
            if !fill {
                return Some([first, most]);
            }
            let (mut after, mut turn) = (state.clone(), at);
            // Of more turns only the latest moment is known.
            for _ in 0..100 {
                let room = algorithm.peek(&after, turn, 0).remaining();
                let taken = left.min(room - room % each);
                let _ = algorithm.decide(&mut after, turn, taken);
                left -= taken;
                if left == 0 {
                    return Some([turn.since(at); 2]);
                }
                turn = turn.plus(algorithm.peek(&after, turn, each).until_admitted()?);
            }
            Some([turn.since(at), most])
        }
    }
}

/// Takes as much as is available at `now`, at most `most`. Returns how much that was.
fn take_up_to<A: Algorithm>(algorithm: &A, state: &mut A::State, now: Tick, most: u64) -> u64 {
    let mut taken = most.min(algorithm.peek(state, now, 0).remaining());
    let mut looked = algorithm.peek(state, now, taken);
    // Of several limits another one has less, although a greater share of what it may.
    while taken > 0 && looked.is_denied() {
        let left = looked.remaining();
        taken = if left < taken { left } else { 0 };
        looked = algorithm.peek(state, now, taken);
    }
    let _ = algorithm.decide(state, now, taken);
    taken
}
