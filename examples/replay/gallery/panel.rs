//! One panel: what became of the requests, and below, what the server got.

use std::fmt::Write;

use super::{
    LIMIT,
    run::{Fate, Run},
    traffic::LENGTH,
};
use crate::svg::{Px, Svg, area, px, steps};

pub(super) const WIDTH: u64 = 200;
pub(super) const HEIGHT: u64 = 164;
/// The tops and heights of the two plots in a panel.
const REQUESTS: (u64, u64) = (36, 56);
const SECONDS: (u64, u64) = (100, 46);
/// Milliseconds per column, and per tenth of a pixel.
const COLUMN: u64 = 100;
const TENTH: u64 = LENGTH / (WIDTH * 10);
/// The times at which a curve may change, in milliseconds.
const SAMPLE: u64 = 20;

/// Whether a request of this fate and client is of a kind.
type Kind = fn(Fate, usize) -> bool;

/// Draws a panel with its upper left corner at `(left, top)`. The lower plot has room for `most`
/// requests.
pub(super) fn draw(svg: &mut Svg, (left, top): (u64, u64), name: &str, run: &Run, most: u64) {
    let highest = columns(run, |_, _| true).max().unwrap_or_default().max(1);
    let most = most.max(LIMIT * 3 / 2);
    svg.text("name", px(left), px(top + 10), name);
    svg.text("small", px(left), px(top + 25), &numbers(run));
    let peak = run.most_in_a_second();
    if peak > LIMIT {
        let text = format!("{peak} in a second");
        svg.text("small end", px(left + WIDTH), px(top + 25), &text);
    }

    // Requests by the time of their arrival, one kind on top of the other.
    let bottom = px(top + REQUESTS.0 + REQUESTS.1);
    let kinds: [(&str, Kind); 4] = [
        ("other", |fate, client| fate == Fate::AtOnce && client == 1),
        ("admitted", |fate, client| {
            fate == Fate::AtOnce && client == 0
        }),
        ("waiting", |fate, _| fate == Fate::Queued),
        ("denied", |fate, _| fate == Fate::Denied),
    ];
    let mut below = vec![0; columns(run, |_, _| true).count()];
    for (class, kind) in kinds {
        let mut bars = String::new();
        for (at, (many, below)) in (0..).zip(columns(run, kind).zip(&mut below)) {
            if many > 0 {
                let x = Px((left * 10 + at * COLUMN / TENTH) + 5);
                let height = |many: u64| many * REQUESTS.1 * 10 / highest;
                let foot = Px(bottom.0 - height(*below));
                let tall = Px(height(*below + many) - height(*below));
                let _ = write!(bars, "M{x} {foot}v-{tall}h4v{tall}Z");
                *below += many;
            }
        }
        svg.path(class, &bars);
    }
    let right = left + WIDTH;
    svg.path("grid", &format!("M{left} {bottom}H{right}"));

    // Requests admitted within the last second.
    let bottom = px(top + SECONDS.0 + SECONDS.1);
    let y = |many: u64| Px(bottom.0 - many * SECONDS.1 * 10 / most);
    let limit = y(LIMIT);
    let clients = if run.has_two_clients() { 2 } else { 1 };
    for (client, class) in (0..clients).zip(["line admitted", "line other"]) {
        let samples = (1..=LENGTH / SAMPLE).map(|sample| {
            let end = sample * SAMPLE;
            // The highest count of the sample, so that no peak is lost.
            let counts = (end - SAMPLE..end).map(|at| run.in_a_second(client, at));
            (
                Px(left * 10 + end / TENTH),
                y(counts.max().unwrap_or_default()),
            )
        });
        let samples: Vec<_> = samples.collect();
        let over: Vec<_> = samples.iter().map(|(x, y)| (*x, (*y).min(limit))).collect();
        svg.path("over", &area(px(left), limit, &over));
        svg.path(class, &steps(px(left), samples));
    }
    svg.path("grid", &format!("M{left} {bottom}H{right}"));
    svg.path("limit", &format!("M{left} {limit}H{right}"));
    for second in 0..=LENGTH / 1_000 {
        let x = left * 10 + second * 1_000 / TENTH;
        svg.path("grid", &format!("M{} {bottom}v3", Px(x)));
        let label = format!(
            "{second}{}",
            if second == LENGTH / 1_000 { " s" } else { "" }
        );
        let class = match second {
            0 => "small",
            _ if label.ends_with('s') => "small end",
            _ => "small middle",
        };
        svg.text(class, Px(x), Px(bottom.0 + 130), &label);
    }
}

/// What became of the requests: `20 admitted, 10 denied`, or `2 at once, 10 queued, 3 denied`.
pub(super) fn numbers(run: &Run) -> String {
    let queued = run.count(Fate::Queued);
    let at_once = if queued > 0 { "at once" } else { "admitted" };
    let mut text = format!("{} {at_once}", run.count(Fate::AtOnce));
    for (many, name) in [(queued, "queued"), (run.count(Fate::Denied), "denied")] {
        if many > 0 {
            let _ = write!(text, ", {many} {name}");
        }
    }
    text
}

/// The requests per column of these fates and clients.
fn columns(run: &Run, of: impl Fn(Fate, usize) -> bool) -> impl Iterator<Item = u64> {
    (0..LENGTH / COLUMN).map(move |column| {
        let arrivals = run.arrivals.iter().filter(|one| one.at / COLUMN == column);
        arrivals.filter(|one| of(one.fate, one.client)).count() as u64
    })
}
