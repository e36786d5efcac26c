//! A page of panels with one legend.

use std::fmt::Write;

use super::{
    LIMIT, panel,
    run::{Fate, Run},
};
use crate::svg::{Svg, px};

const MARGIN: u64 = 16;
const GAP: u64 = 22;
/// The title and the legend.
const HEAD: u64 = 78;

/// Panels, whose lower plots are on the same scale.
pub(super) struct Page {
    pub(super) title: String,
    /// What the traffic is.
    pub(super) says: &'static str,
    /// Panels per row.
    pub(super) per_row: u64,
    /// Their names, and what happened in each.
    pub(super) runs: Vec<(&'static str, Run)>,
}

impl Page {
    pub(super) fn svg(&self) -> String {
        let rows = (self.runs.len() as u64).div_ceil(self.per_row);
        let width = 2 * MARGIN + self.per_row * (panel::WIDTH + GAP) - GAP;
        let height = HEAD + rows * (panel::HEIGHT + GAP) - GAP + MARGIN;
        let mut svg = Svg::new(width, height, &self.title, &self.in_words());
        svg.text("title", px(MARGIN), px(26), &self.title);
        self.legend(&mut svg);
        let most = self.runs.iter().map(|(_, run)| run.most_in_a_second());
        let most = most.max().unwrap_or_default();
        for (at, (name, run)) in (0..).zip(&self.runs) {
            let left = MARGIN + at % self.per_row * (panel::WIDTH + GAP);
            let top = HEAD + at / self.per_row * (panel::HEIGHT + GAP);
            panel::draw(&mut svg, (left, top), name, run, most);
        }
        svg.end()
    }

    fn legend(&self, svg: &mut Svg) {
        let has = |fate| self.runs.iter().any(|(_, run)| run.count(fate) > 0);
        let two = self.runs.iter().any(|(_, run)| run.has_two_clients());
        let mut entries = vec![("admitted", "admitted", 58)];
        if two {
            entries.push(("other", "second client", 80));
        }
        if has(Fate::Queued) {
            entries.push(("waiting", "queued", 46));
        }
        entries.push(("denied", "denied", 46));
        entries.push(("line admitted", "admitted in the last second", 172));
        entries.push(("limit", "limit", 30));
        if self
            .runs
            .iter()
            .any(|(_, run)| run.most_in_a_second() > LIMIT)
        {
            entries.push(("over", "above it", 50));
        }
        let mut left = MARGIN;
        for (class, text, length) in entries {
            let sample = match class {
                "limit" | "line admitted" => format!("M{left} 47h18"),
                "denied" => format!("M{left}.5 42.5h10v9h-10Z"),
                _ => format!("M{left} 42h11v10h-11Z"),
            };
            svg.path(class, &sample);
            let wide = if class.starts_with("li") { 24 } else { 16 };
            svg.text("", px(left + wide), px(51), text);
            left += wide + length + 18;
        }
    }

    /// What the page shows, in words.
    fn in_words(&self) -> String {
        let mut words = self.says.to_owned();
        for (name, run) in &self.runs {
            let numbers = panel::numbers(run);
            let most = run.most_in_a_second();
            let _ = write!(
                words,
                " {name}: {numbers}; at most {most} admitted per client within a second."
            );
        }
        words + &format!(" The limit is {LIMIT} per second.")
    }
}
