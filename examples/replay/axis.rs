//! Round numbers for axes.

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// Units of time: name, length in nanoseconds, and how many of them a trace has at least to be
/// measured in them.
const UNITS: [(&str, u64, u64); 7] = [
    ("d", DAY, 4),
    ("h", HOUR, 4),
    ("min", MINUTE, 5),
    ("s", SECOND, 2),
    ("ms", 1_000_000, 2),
    ("us", 1_000, 2),
    ("ns", 1, 0),
];

/// Units of time for a rate.
const RATES: [(&str, u64); 4] = [
    ("second", SECOND),
    ("minute", MINUTE),
    ("hour", HOUR),
    ("day", DAY),
];

/// The widths that a column may have, in nanoseconds, in ascending order.
pub(crate) fn round_widths() -> impl Iterator<Item = u64> {
    let decimal = (0..9).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let seconds = [1, 2, 5, 10, 30].map(|many| many * SECOND);
    let minutes = [1, 2, 5, 10, 30].map(|many| many * MINUTE);
    let hours = [1, 2, 6, 12].map(|many| many * HOUR);
    let days = (0..5).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power) * DAY));
    decimal
        .chain(seconds)
        .chain(minutes)
        .chain(hours)
        .chain(days)
}

/// A step of 1, 2 or 5 times a power of ten, of which `top` has at most `steps`.
pub(crate) fn round_step(top: u128, steps: u128) -> u128 {
    let least = top.div_ceil(steps.max(1)).max(1);
    let mut power: u128 = 1;
    loop {
        for digit in [1, 2, 5] {
            if digit * power >= least {
                return digit * power;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// The unit of a rate, and its length in nanoseconds: per second, or longer if `units` in `ns` are
/// less than one per second.
pub(crate) fn rate_unit(units: u128, ns: u64) -> (&'static str, u64) {
    let reaches_one = |(_, length): &(_, u64)| units * u128::from(*length) >= u128::from(ns);
    RATES.into_iter().find(reaches_one).unwrap_or(("day", DAY))
}

/// A time axis.
#[derive(Clone, Copy)]
pub(crate) struct Time {
    pub(crate) unit: &'static str,
    length: u64,
    /// Nanoseconds between two labels.
    pub(crate) step: u64,
}

impl Time {
    /// An axis with at most `labels` labels for a time of `ns`.
    pub(crate) fn up_to(ns: u64, labels: u64) -> Self {
        let fits = |(_, length, least): &(_, u64, u64)| ns / length >= *least;
        let (unit, length, _) = UNITS.into_iter().find(fits).unwrap_or(UNITS[6]);
        // In thousandths of the unit, so that labels are short.
        let grain = (length / 1000).max(1);
        let step = round_step(u128::from(ns / grain), u128::from(labels));
        let step = u64::try_from(step).unwrap_or(u64::MAX);
        Self {
            unit,
            length,
            step: step.saturating_mul(grain),
        }
    }

    /// The label of a time: `1.5`.
    pub(crate) fn label(&self, at: u64) -> String {
        decimal(u128::from(at) * 1000 / u128::from(self.length))
    }
}

/// Thousandths as a decimal: `1500` is `1.5`.
fn decimal(thousandths: u128) -> String {
    let (whole, part) = (thousandths / 1000, thousandths % 1000);
    if part == 0 {
        return whole.to_string();
    }
    let digits = format!("{part:03}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// A count in short: `950`, `1.5k`, `20M`.
pub(crate) fn short(count: u128) -> String {
    let mut scale = 1_u128;
    for prefix in ["", "k", "M", "G", "T", "P", "E"] {
        if count < scale * 1000 || prefix == "E" {
            let text = if scale == 1 {
                count.to_string()
            } else {
                decimal(count / (scale / 1000))
            };
            return text + prefix;
        }
        scale *= 1000;
    }
    count.to_string()
}

#[cfg(test)]
mod tests {
    use super::{DAY, HOUR, MINUTE, SECOND, Time, rate_unit, round_step, round_widths, short};

    #[test]
    fn steps_are_round_and_few() {
        let steps = [(1, 5), (7, 5), (23, 5), (100, 5), (101, 5), (26, 2)];
        let steps = steps.map(|(top, many)| round_step(top, many));
        assert_eq!(steps, [1, 2, 5, 20, 50, 20]);
        assert!(round_step(u128::from(u64::MAX), 5) > 1_000_000_000_000_000_000);
    }

    #[test]
    fn counts_are_short() {
        let counts = [0, 999, 1_000, 1_500, 20_000_000, 1_000_000_000_000].map(short);
        assert_eq!(counts, ["0", "999", "1k", "1.5k", "20M", "1T"]);
    }

    #[test]
    fn rates_are_per_second_unless_that_is_less_than_one() {
        assert_eq!(rate_unit(1, SECOND).0, "second");
        assert_eq!(rate_unit(9, 10 * SECOND).0, "minute");
        assert_eq!(rate_unit(1, HOUR).0, "hour");
        assert_eq!(rate_unit(0, SECOND).0, "day");
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        let axis = |ns| {
            let time = Time::up_to(ns, 10);
            format!("{} {}", time.label(time.step), time.unit)
        };
        let lengths = [
            500,
            3 * SECOND,
            20 * SECOND,
            90 * MINUTE,
            30 * HOUR,
            30 * DAY,
        ];
        let labels = ["50 ns", "0.5 s", "2 s", "10 min", "5 h", "5 d"];
        assert_eq!(lengths.map(axis), labels);
    }

    #[test]
    fn widths_ascend() {
        let widths: Vec<u64> = round_widths().collect();
        assert!(
            widths.windows(2).all(|pair| pair[0] < pair[1]),
            "{widths:?}"
        );
    }
}
