//! What the name of a key ends with: how its value is to be read. Limits of one layout share a value.

use std::time::Duration;

use crate::algorithm::{Algorithm, Cells, Division, Kernel, kernels, layout_of_settings};
use crate::clock::unix_now;

/// The layout of a value that an algorithm in this process reads.
pub(crate) fn layout_of<A: Algorithm>(algorithm: &A) -> String {
    let [kinds, periods] = layout_of_settings(algorithm);
    let Some(limits) = kernels(algorithm, unix_now()) else {
        return format!("kind{kinds}{periods}");
    };
    layout(&limits, Duration::from_nanos) + &kinds
}

/// The name of a layout, such as `bucket/1s+window/60s`. `duration` is that of a time of the kernels.
pub(crate) fn layout(limits: &[Kernel], duration: impl Fn(u64) -> Duration) -> String {
    let layouts: Vec<_> = limits
        .iter()
        .map(|limit| of_one(limit, &duration))
        .collect();
    layouts.join("+")
}

fn of_one(limit: &Kernel, duration: impl Fn(u64) -> Duration) -> String {
    let span = |time: u64| format!("{:?}", duration(time));
    match limit {
        Kernel::Level(level) => {
            // A unit has as many parts as the period has microseconds in Redis, or nanoseconds.
            format!("bucket/{}", span(level.period))
        }
        Kernel::Cells(cells) => {
            let (length, padding) = (span(cells.length), padding(cells));
            let text = match &cells.division {
                Division::Calendar { name, .. } => return format!("calendar/{name}"),
                Division::Anchored => return format!("anchored/{length}"),
                Division::Weighted => format!("sliding/{length}"),
                Division::Even if cells.count == 1 => format!("window/{length}"),
                Division::Even => format!("grid/{length}x{}", cells.count),
            };
            match padding {
                0 => text,
                padding => format!("{text}-{}", span(padding)),
            }
        }
        Kernel::Log { period, .. } => format!("log/{}", span(*period)),
    }
}

/// What is added to a time before it is divided into cells.
pub(crate) const fn padding(cells: &Cells) -> u64 {
    match cells.offset.checked_rem(cells.length) {
        None | Some(0) => 0,
        Some(into) => cells.length - into,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, SlidingGrid};
    use crate::quota::Quota;

    #[test]
    fn windows_that_are_divided_in_another_way_have_another_layout() {
        let quota = Quota::per_minute(6);
        let window = |secs| layout_of(&FixedWindow::new(quota).offset(Duration::from_secs(secs)));
        assert_eq!([0, 20].map(window), ["window/60s.1", "window/60s-40s.1"]);
        let grid = |cells| layout_of(&SlidingGrid::new(quota).cells(cells));
        assert_eq!([2, 6].map(grid), ["grid/30sx2.6", "grid/10sx6.6"]);
    }
}
