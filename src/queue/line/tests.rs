use super::moves::rescale_span;
use super::*;
use crate::computed::{computed, growth};
use crate::queue::{Order, tests::TestWaker};

fn tick(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// A line with a waiter of each of these costs, a nanosecond per unit.
fn line(costs: &[u64], order: Order) -> (Line, Vec<Rank>) {
    let mut line = Line::new(1);
    let mut next_slot = 1;
    let join = |cost: &u64| {
        let rank = line.join(*cost, tick(next_slot), order.into());
        next_slot += cost;
        rank
    };
    let ranks = costs.iter().map(join).collect();
    (line, ranks)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the closure that the line takes returns an option"
)]
fn quota() -> Option<Quota> {
    Some(Quota::per(1, Duration::from_nanos(1)))
}

/// Shows promise 66.
#[test]
fn a_waiter_polled_with_a_new_waker_is_woken_by_it() {
    for costs in [[1, 1], [1, 2]] {
        let (mut line, ranks) = line(&costs, Order::Oldest);
        let [old, new] = [TestWaker::new(), TestWaker::new()];
        let mut stale = None;
        for waker in [&old, &new] {
            let waker = Waker::from(Arc::clone(waker));
            assert_eq!(line.poll_waiter(ranks[0], &waker, &mut stale), None);
        }
        // The old waker is handed out, to be dropped without a lock.
        assert!(stale.is_some_and(|stale| stale.will_wake(&Arc::clone(&old).into())));
        let mut wakers = Vec::new();
        line.release(tick(1), &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
        assert_eq!((old.count(), new.count()), (0, 1));
    }
}

#[test]
fn the_newest_rank_does_not_count_as_released_in_a_line_that_was_fifo() {
    let (mut line, ranks) = line(&[1, 1, 1], Order::Oldest);
    line.release(tick(1), &mut Vec::new());
    let status = Arc::clone(line.status());
    assert!(status.has_released(ranks[0]) && !status.has_released(ranks[1]));
    let newest = line.join(1, tick(4), Order::Newest.into());
    assert!(!status.has_released(newest), "it would go at once");
    line.release(tick(2), &mut Vec::new());
    assert!(!line.contains(newest) && line.contains(ranks[1]));
}

#[test]
fn one_odd_cost_leaves_the_others_last_come_first_served() {
    let (mut line, ranks) = line(&[1, 1, 5, 1, 1], Order::Newest);
    let mut released = Vec::new();
    for now in 1..=9 {
        line.release(tick(now), &mut Vec::new());
        for (index, rank) in ranks.iter().enumerate() {
            if !line.contains(*rank) && !released.contains(&index) {
                released.push(index);
            }
        }
    }
    // The slots of cost 1 are 1, 2, 8 and 9. The slot of cost 5 is 3.
    assert_eq!(released, [4, 3, 2, 1, 0]);
}

#[test]
fn the_newest_request_of_another_cost_leaves_the_first_class_in_order() {
    let (mut line, ranks) = line(&[1], Order::Oldest);
    let newest = line.join(2, tick(2), Order::Newest.into());
    let last = line.join(1, tick(4), Order::Oldest.into());
    line.remove(ranks[0], quota, &mut None);
    assert_eq!(line.next_slot(), Some(tick(1)));
    line.release(tick(1), &mut Vec::new());
    assert!(!line.contains(newest) && line.contains(last));
    assert_eq!(line.next_slot(), Some(tick(3)));
}

/// A waiter that a poll finds released without the lock has left the line.
#[test]
fn no_waiter_in_the_line_looks_released() {
    for costs in [&[1, 1, 1, 1][..], &[1, 1, 5, 1, 1], &[2, 1, 3, 1]] {
        for (order, sheds) in [
            (Order::Oldest, true),
            (Order::Newest, false),
            (Order::Newest, true),
        ] {
            let (mut line, mut ranks) = line(costs, Order::Oldest);
            ranks.push(line.join(1, tick(30), order.into()));
            ranks.push(line.join(1, tick(31), order.into()));
            if sheds {
                line.shed(1, Duration::from_secs(1), quota, &mut Vec::new());
            }
            ranks.push(line.join(1, tick(32), order.into()));
            let status = Arc::clone(line.status());
            for now in 0..=32 {
                line.release(tick(now), &mut Vec::new());
                let mut waits = ranks.iter().filter(|rank| line.contains(**rank));
                let early = waits.find(|rank| status.has_released(**rank));
                assert_eq!(early, None, "at {now} of {costs:?}, {order:?}");
            }
            assert_eq!(line.len(), 0);
        }
    }
}

/// Shows promise 72.
#[test]
fn removal_takes_no_longer_in_a_longer_line_if_costs_differ() {
    for order in [Order::Oldest, Order::Newest] {
        let grown = growth(5_000, |count| {
            let costs: Vec<_> = (0..count as u64).map(|index| 1 + index % 2).collect();
            let (mut line, ranks) = line(&costs, order);
            let took = computed(|| {
                for rank in &ranks[1..count - 1] {
                    let outcome = line.remove(*rank, quota, &mut None);
                    assert_eq!(outcome, CostOutcome::Refund);
                }
            });
            assert_eq!(line.len(), 2);
            // Only the cost of the first waiter is left ahead of the last one.
            assert_eq!(line.next_slot(), Some(tick(1)));
            assert_eq!(line.last_slot(), Some(tick(2)));
            took
        });
        assert!(grown < 24, "{grown}");
    }
}

#[test]
fn joining_and_replacing_take_no_longer_in_a_longer_line() {
    let place = Precedence::from(Order::Newest);
    let grown = growth(10_000, |count| {
        let mut line = Line::new(1);
        computed(|| {
            for slot in 0..2 * count as u64 {
                let rank = line.join(1, tick(slot), Order::Newest.into());
                assert_eq!(line.is_last(rank), slot == 0);
            }
            for left in (count as u64..2 * count as u64).rev() {
                let count = line.costs_to_shed(1, place, quota).count();
                assert_eq!(count as u64, left + 1);
                let slot = line.shed_equal(1, place, Duration::ZERO, &mut Vec::new());
                assert_eq!(slot, Some(tick(left)));
            }
        })
    });
    assert!(grown < 24, "{grown}");
}

#[test]
fn a_request_replaces_the_last_one_of_its_cost_where_costs_differ() {
    let (mut line, ranks) = line(&[1, 1, 5, 1], Order::Newest);
    let to_shed: Vec<_> = line.costs_to_shed(5, Order::Newest.into(), quota).collect();
    assert_eq!(to_shed, [5]);
    assert_eq!(
        line.costs_to_shed(7, Order::Newest.into(), quota).count(),
        0
    );
    // The slot of cost 5 is not the last one, so its removal moves others, which needs a quota.
    assert_eq!(
        line.costs_to_shed(5, Order::Newest.into(), || None).count(),
        0
    );
    assert_eq!(
        line.costs_to_shed(1, Order::Newest.into(), || None).count(),
        1
    );
    line.shed(1, Duration::from_secs(3), quota, &mut Vec::new());
    assert_eq!(line.len(), 3);
    let shed = line.poll_waiter(ranks[0], Waker::noop(), &mut None);
    assert_eq!(shed, Some(WaitOutcome::Shed(Duration::from_secs(3))));
}

#[test]
fn a_line_that_was_mixed_and_emptied_uses_new_ranks() {
    let (mut line, ranks) = line(&[1, 2], Order::Oldest);
    line.shed(2, Duration::from_secs(1), quota, &mut Vec::new());
    line.release(tick(1), &mut Vec::new());
    assert!(line.len() == 0 && !line.is_unused());
    let next = line.join(3, tick(9), Order::Oldest.into());
    assert!(!ranks.contains(&next));
    assert!(line.contains(next) && line.contains(ranks[1]));
    line.release(tick(9), &mut Vec::new());
    assert!(!line.is_unused(), "the shed waiter was not polled");
    assert!(
        line.poll_waiter(ranks[1], Waker::noop(), &mut None)
            .is_some()
    );
    assert!(line.is_unused());
}

#[test]
fn moving_slots_by_no_time_keeps_the_costs_equal() {
    let (mut line, _) = line(&[1, 1, 1], Order::Oldest);
    line.shift_earlier(Duration::ZERO);
    // A line of different costs would remove one waiter at most.
    assert_eq!(
        line.costs_to_shed(2, Order::Newest.into(), || None).count(),
        3
    );
    assert_eq!(line.last_slot(), Some(tick(3)));
}

#[test]
fn a_waiter_of_another_cost_is_not_shed_as_an_equal_one() {
    let (mut line, _) = line(&[1, 1], Order::Oldest);
    let mut shed =
        |cost| line.shed_equal(cost, Order::Newest.into(), Duration::ZERO, &mut Vec::new());
    assert_eq!(shed(2), None);
    assert_eq!(shed(1), Some(tick(2)));
    assert_eq!(line.len(), 1);
}

#[test]
fn a_span_is_converted_exactly_and_rounded_up() {
    let quota = |limit, period| Quota::per(limit, Duration::from_nanos(period));
    for (from_limit, from_period) in [(1, 1), (3, 7), (8, 3)] {
        for (to_limit, to_period) in [(1, 1), (2, 5), (9, 4)] {
            let (from, to) = (quota(from_limit, from_period), quota(to_limit, to_period));
            for span in 0..100 {
                let exact = (span * to_period * from_limit).div_ceil(from_period * to_limit);
                assert_eq!(rescale_span(span, &from, &to), exact, "{from} to {to}");
            }
        }
    }
}

/// The products of limit and period take more than 64 bits.
#[test]
fn a_span_between_large_quotas_is_never_converted_to_less() {
    let quota = |limit| Quota::per(limit, Duration::from_nanos(1 << 58));
    let (large, smaller) = (quota(1 << 52), quota(3 << 50));
    // Three quarters, and not more than 2 above.
    let exact = (u128::from(u64::MAX) * 3).div_ceil(4);
    let converted = u128::from(rescale_span(u64::MAX, &smaller, &large));
    assert!((exact..=exact + 2).contains(&converted), "{converted}");
    // More than 64 bits.
    assert_eq!(rescale_span(u64::MAX, &large, &smaller), u64::MAX);
    // The ratio is 4, and what is lost by the shift is rounded up.
    let quarter = quota(1 << 50);
    assert_eq!(rescale_span(1 << 40, &large, &quarter), (1 << 42) + 1);
}

/// A place in a level, behind all of it.
fn level(level: u8) -> Precedence {
    let order = Order::Oldest;
    Precedence { order, level }
}

/// Shows promise 189.
#[test]
fn a_lower_level_goes_first_and_takes_the_place_of_the_last_one_of_a_higher_level() {
    for costs in [[1; 4], [1, 2, 1, 2]] {
        let mut line = Line::new(1);
        let levels = [50, 0, 20, 0];
        let all = costs.iter().zip(levels).zip(1..);
        let ranks: Vec<_> = all
            .map(|((cost, of), slot)| line.join(*cost, tick(slot), level(of)))
            .collect();
        // Of requests that do not go before a waiter of their cost, none is replaced.
        let replaced = |line: &Line, cost, of| line.costs_to_shed(cost, level(of), quota).count();
        assert_eq!(replaced(&line, 1, 50), 0);
        assert_eq!(
            replaced(&line, costs[1], 0),
            if costs[1] == 1 { 2 } else { 0 }
        );
        assert_eq!(replaced(&line, 1, 49), 1);
        line.shed(1, Duration::ZERO, quota, &mut Vec::new());
        assert!(
            line.poll_waiter(ranks[0], Waker::noop(), &mut None)
                .is_some()
        );
        let first = line.join(1, tick(9), level(0));
        let order = match costs[1] {
            1 => vec![ranks[1], ranks[3], first, ranks[2]],
            // Those of cost 1 and those of cost 2 keep their slots.
            _ => vec![first, ranks[1], ranks[3], ranks[2]],
        };
        let mut released = Vec::<Rank>::new();
        for now in 0..=9 {
            line.release(tick(now), &mut Vec::new());
            released.extend(order.iter().filter(|rank| !line.contains(**rank)));
            let mut known = std::collections::BTreeSet::new();
            released.retain(|rank| known.insert(*rank));
        }
        assert_eq!(released, order);
    }
}

/// Shows promise 189.
#[test]
fn a_request_that_joins_after_a_later_level_was_released_waits() {
    let mut line = Line::new(1);
    let low = line.join(1, tick(1), level(50));
    let next = line.join(1, tick(5), level(50));
    line.release(tick(1), &mut Vec::new());
    let status = Arc::clone(line.status());
    assert!(status.has_released(low));
    let high = line.join(1, tick(6), level(0));
    assert!(!status.has_released(high), "it would go at once");
    line.release(tick(5), &mut Vec::new());
    assert!(!line.contains(high) && line.contains(next));
}
