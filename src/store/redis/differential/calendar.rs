//! Days, weeks and months, on a machine whose clock is hours away from that of the server.

use super::agreement::assert_agree;
use super::policies::token_bucket;
use super::random::Random;
use crate::algorithm::{AnyAlgorithm, CalendarWindow};
use crate::quota::Quota;

fn calendar(random: &mut Random) -> CalendarWindow {
    let limit = 1 + random.below(30);
    let zone = *random.pick(&["UTC", "Europe/Berlin", "America/Santiago", "Pacific/Apia"]);
    let (quota, most) = *random.pick(&[
        (Quota::per_day(limit), 0),
        (Quota::per_week(limit), 7),
        (Quota::per_month(limit), 31),
    ]);
    let window = CalendarWindow::new(quota, zone).expect("a zone");
    match random.below(3) {
        0 if most > 0 => window.anchor(u8::try_from(1 + random.below(most)).expect("small")),
        _ => window,
    }
}

/// Shows promise 318.
#[test]
fn calendar_window_decides_as_the_script() {
    assert_agree(23, true, calendar);
    assert_agree(24, false, |random| AnyAlgorithm::new(calendar(random)));
    assert_agree(25, false, |random| (calendar(random), token_bucket(random)));
}
