//! Units over time: what was offered, admitted and denied, and what was queued.

use tower_throttle::Quota;

use crate::{
    answer::{Answer, Outcome, nanos},
    axis::{DAY, HOUR, MINUTE, SECOND, round_widths},
    replay::Released,
};

/// The maximum number of bins. After a merge at least a tenth of them is in use.
const BINS: usize = 10_000;

/// The widths of a bin in nanoseconds. Each divides the next.
const WIDTHS: [u64; 20] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    SECOND,
    10 * SECOND,
    MINUTE,
    10 * MINUTE,
    HOUR,
    6 * HOUR,
    DAY,
    10 * DAY,
    100 * DAY,
    1_000 * DAY,
    10_000 * DAY,
];

/// A drawn chart has about so many columns at most.
const COLUMNS: u64 = 120;

/// Units over time, of all keys together.
///
/// The length of a trace is known only at its end. So a bin is one nanosecond wide at first, and if
/// the bins do not suffice, they are merged to the next width.
pub(crate) struct Chart {
    start: Option<u64>,
    /// The index of the width in [`WIDTHS`].
    width: usize,
    bins: Vec<Bin>,
    /// The quota from each of these times on.
    quotas: Vec<(u64, Quota)>,
    /// The number of keys.
    pub(crate) keys: usize,
}

/// Units by when something happened to them.
#[derive(Clone, Copy, Default)]
struct Bin {
    offered: u128,
    admitted: u128,
    denied: u128,
    /// Units that were queued.
    joined: u128,
    /// Queued units that were admitted or cancelled.
    left: u128,
}

/// The chart in columns of a round width.
pub(crate) struct View {
    /// The width of a column in nanoseconds.
    pub(crate) width: u64,
    pub(crate) columns: Vec<Column>,
    /// The quota from each of these times after the start on.
    pub(crate) quotas: Vec<(u64, Quota)>,
}

/// The units of a column, by when something happened to them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) offered: u128,
    /// Admitted, at once or after a wait.
    pub(crate) admitted: u128,
    pub(crate) denied: u128,
    /// The most units queued at one time.
    pub(crate) waiting: u128,
}

impl Chart {
    pub(crate) fn new() -> Self {
        Self {
            start: None,
            width: 0,
            bins: Vec::new(),
            quotas: Vec::new(),
            keys: 0,
        }
    }

    /// Counts a step, and the requests that it released.
    pub(crate) fn record(&mut self, answer: &Answer, released: &[Released], quota: Quota) {
        self.keys = self.keys.max(answer.key + 1);
        // Also for a step that requests nothing: time has passed.
        let bin = self.bin(answer.now);
        if let Some(units) = answer.offered {
            bin.offered += u128::from(units);
            match answer.outcome {
                Outcome::Wait(_) => bin.joined += u128::from(units),
                Outcome::Deny => bin.denied += u128::from(units),
                // The rest of a `take_up_to` was denied.
                Outcome::Admit(_) | Outcome::Done(_) => {
                    bin.denied += u128::from(units - answer.taken.unwrap_or(units));
                }
            }
        }
        bin.left += u128::from(answer.dropped.unwrap_or_default());
        if self.quotas.last().is_none_or(|(_, last)| *last != quota) {
            self.quotas.push((answer.now, quota));
        }
        self.release(released);
    }

    /// Counts admitted requests, at the times when they were admitted.
    pub(crate) fn release(&mut self, released: &[Released]) {
        for one in released {
            let bin = self.bin(one.at);
            bin.admitted += u128::from(one.units);
            if one.waited {
                bin.left += u128::from(one.units);
            }
        }
    }

    /// The bin of a time, which is at or after the first step.
    fn bin(&mut self, at: u64) -> &mut Bin {
        let since = at.saturating_sub(*self.start.get_or_insert(at));
        let bin = loop {
            match usize::try_from(since / WIDTHS[self.width]) {
                Ok(bin) if bin < BINS => break bin,
                _ => self.merge(),
            }
        };
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, Bin::default());
        }
        &mut self.bins[bin]
    }

    fn merge(&mut self) {
        let many = WIDTHS[self.width + 1] / WIDTHS[self.width];
        self.width += 1;
        let many = usize::try_from(many).unwrap_or(usize::MAX);
        self.bins = self.bins.chunks(many).map(Bin::sum).collect();
    }

    /// The chart in about [`COLUMNS`] columns at most.
    ///
    /// If a round width is a whole number of the limit's intervals, it is used for at least ten
    /// columns, and a stream at the limit is flat. In other columns it would alternate, as 3 per second
    /// in columns of 500 ms does.
    pub(crate) fn view(&self) -> View {
        let fine = WIDTHS[self.width];
        let length = fine.saturating_mul(self.bins.len() as u64).max(1);
        let least = length.div_ceil(COLUMNS);
        let fits = |width: &u64| *width >= least && width.is_multiple_of(fine);
        let round: Vec<u64> = round_widths().filter(fits).collect();
        let first = round.first().copied().unwrap_or(fine);
        let near = round.iter().filter(|width| **width <= length / 10);
        let flat = near.copied().find(|width| {
            let is_flat = |(_, quota): &(u64, Quota)| {
                let units = u128::from(quota.limit()) * u128::from(*width);
                units % u128::from(nanos(quota.period()).max(1)) == 0
            };
            self.quotas.iter().all(is_flat)
        });
        let width = flat.unwrap_or(first);

        let many = usize::try_from(width / fine).unwrap_or(usize::MAX);
        let mut waiting = 0;
        let columns = self.bins.chunks(many).map(|bins| {
            let sum = Bin::sum(bins);
            let depths = bins.iter().map(|bin| {
                waiting = (waiting + bin.joined).saturating_sub(bin.left);
                waiting
            });
            Column {
                waiting: depths.max().unwrap_or_default(),
                offered: sum.offered,
                admitted: sum.admitted,
                denied: sum.denied,
            }
        });
        let start = self.start.unwrap_or_default();
        let quotas = self.quotas.iter();
        View {
            width,
            columns: columns.collect(),
            quotas: quotas.map(|(at, quota)| (at - start, *quota)).collect(),
        }
    }
}

impl Bin {
    fn sum(bins: &[Self]) -> Self {
        bins.iter().fold(Self::default(), |sum, bin| Self {
            offered: sum.offered + bin.offered,
            admitted: sum.admitted + bin.admitted,
            denied: sum.denied + bin.denied,
            joined: sum.joined + bin.joined,
            left: sum.left + bin.left,
        })
    }
}

#[cfg(test)]
mod tests {
    use tower_throttle::Quota;

    use super::{BINS, Chart, Column, SECOND, View, WIDTHS};
    use crate::{
        policy::Policy,
        replay::Replay,
        states::InProcess,
        step::{Op, Step},
    };

    /// The chart of a trace: a policy, and steps as (time, key, operation).
    fn view(policy: &str, steps: impl IntoIterator<Item = (u64, &'static str, Op)>) -> View {
        let Ok(policy) = Policy::parse(policy.as_bytes(), 1) else {
            panic!("not a policy: {policy}");
        };
        let states = Box::new(InProcess::new(&policy));
        let mut replay = Replay::new(policy, states);
        let mut chart = Chart::new();
        for (t_ns, key, op) in steps {
            let key = (!matches!(op, Op::Cancel { .. })).then(|| key.to_owned());
            let n = 1;
            let answer = replay.step(Step { t_ns, key, n, op });
            let answer = answer.expect("a step");
            chart.record(&answer, replay.released(), replay.quota());
        }
        replay.finish();
        chart.release(replay.released());
        chart.view()
    }

    const fn check() -> Op {
        Op::Check { id: None }
    }

    fn admitted(view: &View) -> Vec<u128> {
        view.columns.iter().map(|column| column.admitted).collect()
    }

    const QUEUE: &str =
        r#"{"algorithm":"leaky_bucket","limit":10,"period_ns":1000000000,"burst":1,"queue":300}"#;

    /// Shows promise 101.
    #[test]
    fn units_are_admitted_when_they_leave_the_queue_also_after_the_last_step() {
        let view = view(QUEUE, (0..224).map(|_| (0, "", check())));
        assert_eq!(admitted(&view).iter().sum::<u128>(), 224);
        assert_eq!(view.columns[0].offered, 224);
        assert_eq!(view.columns.iter().map(|one| one.denied).sum::<u128>(), 0);
        // 22.3 s, in columns of 200 ms.
        assert_eq!((view.width, view.columns.len()), (SECOND / 5, 112));
    }

    /// Shows promise 101.
    #[test]
    fn waiting_is_the_depth_of_the_queue_not_its_arrivals() {
        let view = view(QUEUE, (0..224).map(|_| (0, "", check())));
        let waiting: Vec<u128> = view.columns.iter().map(|one| one.waiting).collect();
        // At the end of the first 10 ms, all but one; then ten less per second.
        assert_eq!(waiting[..3], [223, 221, 219]);
        assert_eq!(waiting[111], 1);
    }

    #[test]
    fn the_depth_counts_all_keys_and_no_cancelled_request() {
        let id = Some("x".to_owned());
        let of = "x".to_owned();
        let steps = [
            (0, "a", check()),
            (0, "b", check()),
            (0, "a", Op::Check { id }),
            (0, "b", check()),
            (0, "b", check()),
            (20_000_000, "a", Op::Cancel { of }),
            // The other key has no step after the release of its requests.
            (SECOND, "a", check()),
        ];
        let view = view(QUEUE, steps);
        let waiting: Vec<u128> = view.columns.iter().map(|one| one.waiting).collect();
        // One is cancelled in the first 100 ms, and one is admitted at their end, one 100 ms later.
        assert_eq!(waiting[..3], [3, 1, 0]);
        assert_eq!(waiting.last(), Some(&0));
        assert_eq!(admitted(&view).iter().sum::<u128>(), 5);
    }

    /// Shows promise 101.
    #[test]
    fn a_stream_at_the_limit_is_flat() {
        for (limit, period, length) in [
            (3, SECOND, 100),
            (10, SECOND, 30),
            (7, SECOND, 60),
            (100, SECOND, 13),
            (90, 60 * SECOND, 4000),
        ] {
            let policy = format!(
                r#"{{"algorithm":"leaky_bucket","limit":{limit},"period_ns":{period},"burst":1,"queue":1000000}}"#
            );
            let units = limit * length * SECOND / period;
            let view = view(&policy, (0..units).map(|_| (0, "", check())));
            let admitted = admitted(&view);
            let (last, whole) = admitted.split_last().expect("columns");
            assert!(whole.len() > 20, "{limit}: {} columns", whole.len());
            assert!(
                whole.iter().all(|one| *one == whole[0]) && *last <= whole[0],
                "{limit} per {period}: {admitted:?}"
            );
        }
    }

    #[test]
    fn columns_are_round_however_long_the_trace_is() {
        let quota = Quota::per_second(1);
        for length in [
            1,
            999,
            10_001,
            123_456_789,
            77 * SECOND,
            40_000 * SECOND,
            u64::MAX,
        ] {
            let mut chart = Chart::new();
            chart.quotas.push((0, quota));
            chart.bin(0).offered = 1;
            chart.bin(length).offered = 1;
            assert!(chart.bins.len() <= BINS);
            let view = chart.view();
            assert!(
                view.columns.len() <= 121,
                "{length}: {}",
                view.columns.len()
            );
            assert!(view.columns.len() > 20 || length == 1, "{length}");
            let offered: u128 = view.columns.iter().map(|one| one.offered).sum();
            assert_eq!(offered, 2, "{length}");
        }
        assert!(WIDTHS.windows(2).all(|pair| pair[1] % pair[0] == 0));
    }

    #[test]
    fn a_limit_changes_in_the_chart_when_it_changes() {
        let change = crate::policy::QuotaChange {
            limit: Some(20),
            period: None,
            burst: None,
        };
        let steps = [
            (5, "", check()),
            (SECOND + 5, "", Op::SetQuota(change)),
            (2 * SECOND + 5, "", check()),
        ];
        let view = view(QUEUE, steps);
        let limits = view.quotas.iter().map(|(at, quota)| (*at, quota.limit()));
        assert_eq!(limits.collect::<Vec<_>>(), [(0, 10), (SECOND, 20)]);
    }

    #[test]
    fn a_trace_without_steps_has_no_column() {
        let view = view(QUEUE, []);
        assert_eq!(view.columns, [] as [Column; 0]);
    }
}
