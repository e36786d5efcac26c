//! One row of a comparison: two sides, measured in turn.

use std::sync::Barrier;
use std::time::Instant;

/// The options of a run.
pub(crate) struct Effort {
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// Only rows whose work contains this.
    pub(crate) only: Option<String>,
}

impl Effort {
    pub(crate) fn wants(&self, work: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| work.contains(only.as_str()))
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 3 } else { 7 }
    }

    /// How long a side runs in a round, in nanoseconds.
    fn round(&self) -> u64 {
        if self.quick { 20_000_000 } else { 60_000_000 }
    }
}

/// Runs a number of operations on one thread. Returns a value that depends on all of them.
pub(crate) type Side<'a> = &'a (dyn Fn(u64, u64) -> u64 + Sync);

/// Nanoseconds per operation of `threads` threads at once.
fn time(side: Side<'_>, threads: usize, ops: u64, seed: u64) -> f64 {
    let start = Barrier::new(threads + 1);
    let took = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let begin = Instant::now();
                    std::hint::black_box(side(ops, seed.wrapping_mul(31) + thread));
                    begin.elapsed().as_nanos() as f64
                })
            })
            .collect();
        start.wait();
        let times = handles
            .into_iter()
            .map(|handle| handle.join().expect("no panic"));
        times.sum::<f64>() / threads as f64
    });
    took / ops as f64
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) peer: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Vec<f64>,
    pub(crate) theirs: Vec<f64>,
    /// The largest allowed `ours / theirs`, or the largest allowed `ours` if `absolute`. Infinite
    /// if there is no goal.
    pub(crate) goal: f64,
    pub(crate) absolute: bool,
    /// More is better, as for a rate: the goal is a minimum.
    pub(crate) more: bool,
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn ends(figures: &[f64]) -> (f64, f64) {
    figures.iter().fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), figure| (least.min(*figure), most.max(*figure)),
    )
}

impl Row {
    /// The median ratio. Ratios are taken per round, because the speed of a machine varies.
    fn ratio(&self) -> f64 {
        let rounds = self.ours.iter().zip(&self.theirs);
        let ratios: Vec<_> = rounds.map(|(ours, theirs)| ours / theirs).collect();
        median(&ratios)
    }

    /// Measures both sides in turn.
    pub(crate) fn timed(
        effort: &Effort,
        work: String,
        peer: &'static str,
        threads: usize,
        (ours, theirs): (Side<'_>, Side<'_>),
        goal: f64,
    ) -> Self {
        let ops = |side| {
            let once = time(side, threads, 20_000, 1);
            (effort.round() as f64 / once).max(20_000.0) as u64
        };
        let (our_ops, their_ops) = (ops(ours), ops(theirs));
        let mut row = Self {
            work,
            peer,
            unit: "ns",
            ours: Vec::new(),
            theirs: Vec::new(),
            goal,
            absolute: false,
            more: false,
        };
        for round in 0..effort.rounds() as u64 {
            row.theirs.push(time(theirs, threads, their_ops, round + 2));
            row.ours.push(time(ours, threads, our_ops, round + 2));
        }
        row
    }

    pub(crate) fn print(&self, effort: &Effort) {
        let (ours, theirs) = (median(&self.ours), median(&self.theirs));
        let (our_ends, their_ends) = (ends(&self.ours), ends(&self.theirs));
        let ratio = self.ratio();
        let figure = if self.absolute { ours } else { ratio };
        let met = match self.more {
            false => figure <= self.goal,
            true => figure >= self.goal,
        };
        let Self {
            work,
            peer,
            unit,
            goal,
            absolute,
            more,
            ..
        } = self;
        let goal_met = match goal.is_finite() {
            true => format!(
                "goal {}{goal}{} {}",
                if *more { ">= " } else { "<= " },
                if *absolute { "" } else { "x" },
                if met { "met" } else { "NOT MET" },
            ),
            false => "no goal".into(),
        };
        if effort.json {
            // JSON has no infinity.
            let finite = |figure: f64, text: String| match figure.is_finite() {
                true => text,
                false => "null".into(),
            };
            let ratio = finite(ratio, format!("{ratio:.3}"));
            let met = finite(*goal, met.to_string());
            let goal = finite(*goal, goal.to_string());
            println!(
                "{{\"work\":\"{work}\",\"ours\":{ours:.2},\"peer\":\"{peer}\",\"theirs\":{theirs:.2},\
                 \"unit\":\"{unit}\",\"ratio\":{ratio},\"min\":[{:.2},{:.2}],\"max\":[{:.2},{:.2}],\
                 \"goal\":{goal},\"absolute\":{absolute},\"more\":{more},\"met\":{met}}}",
                our_ends.0, their_ends.0, our_ends.1, their_ends.1,
            );
        } else {
            println!(
                "{work:<58} {ours:>8.1} ({:.1}-{:.1})  {peer} {theirs:>8.1} ({:.1}-{:.1}) {unit}  \
                 ratio {ratio:.2}  {}",
                our_ends.0, our_ends.1, their_ends.0, their_ends.1, goal_met,
            );
        }
    }
}
