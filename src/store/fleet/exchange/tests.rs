//! How machines are counted.

use super::*;

#[test]
fn a_machine_counts_once_in_each_beat_of_ten_intervals_and_in_the_next() {
    let terms = Terms {
        interval: 1_000_000,
        life: 10_000_000,
        ahead: false,
        machines: 1,
    };
    let second = 1_000_000;
    let mut census = Census::default();
    for (beat, now, counted) in [
        (0, 100 * second, (10, 1)),
        (0, 105 * second, (10, 2)),
        // Both again.
        (10, 109 * second, (10, 2)),
        (10, 110 * second - 1, (10, 2)),
        // In the next beat as many as in this one, until more are counted.
        (10, 110 * second, (11, 2)),
        (10, 111 * second, (11, 2)),
        (0, 112 * second, (11, 3)),
        // A beat without any.
        (11, 130 * second, (13, 1)),
    ] {
        let found = count_machine(&terms, &mut census, beat, now);
        assert_eq!(found, counted, "at {now}");
    }
}
