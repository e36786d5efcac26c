//! The picture: the limits of the adaptive algorithms, and the workers that the server has.

use std::fmt::Write;

use replay::svg::{Px, Svg, px, steps};

use crate::simulation::PHASES;

const WIDTH: u64 = 940;
const HEIGHT: u64 = 320;
/// Pixels per second, and per permit.
const X: u64 = 3;
const Y: u64 = 2;
const LEFT: u64 = 50;
const BOTTOM: u64 = 280;

const TITLE: &str = "The limits of Gradient2 while the capacity of the server changes";

/// The limits of Gradient2 for requests that take equally long, and for others. The same bytes for the
/// same limits.
pub(crate) fn picture(limits: &[Vec<u64>; 2]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, TITLE, &in_words(limits));
    svg.text("title", px(LEFT), px(22), TITLE);
    grid(&mut svg);
    let mut second = 0;
    let workers = PHASES.map(|(workers, length)| {
        second += length;
        (x(second), y(workers as u64))
    });
    line(&mut svg, ("limit", "workers of the server"), &workers, 0);
    let names = [
        ("line admitted", "Gradient2, 100 ms"),
        ("line other", "Gradient2, 50 to 150 ms"),
    ];
    for (at, (name, limits)) in (1..).zip(names.into_iter().zip(limits)) {
        let limits = limits.iter().map(|limit| y(*limit));
        let points: Vec<_> = (1..).map(x).zip(limits).collect();
        line(&mut svg, name, &points, at);
    }
    svg.end()
}

/// What the picture shows, for a reader who cannot see it.
fn in_words(limits: &[Vec<u64>; 2]) -> String {
    let [equal, mixed] = limits;
    let mut text = String::new();
    let mut end = 0;
    for (workers, length) in PHASES {
        end += length;
        let last = |limits: &[u64]| {
            let found = limits.iter().zip(1..).find(|(_, second)| *second == end);
            found.map_or(0, |(limit, _)| *limit)
        };
        let _ = write!(
            text,
            "With {workers} workers, until second {end}, the limit ends at {} if requests take 100 ms and \
             at {} if they take 50 to 150 ms. ",
            last(equal),
            last(mixed),
        );
    }
    text.trim_end().to_owned()
}

fn grid(svg: &mut Svg) {
    for permits in (0..=120).step_by(20) {
        let y = y(permits);
        svg.path("grid", &format!("M{LEFT} {y}H{}", x(seconds())));
        svg.text("end", px(LEFT - 6), Px(y.0 + 40), &permits.to_string());
    }
    svg.text_upwards(px(16), px(BOTTOM - Y * 60), "requests in flight");
    for second in (0..=seconds()).step_by(60) {
        svg.text("middle", x(second), px(BOTTOM + 18), &format!("{second} s"));
    }
}

fn seconds() -> u64 {
    PHASES.iter().map(|(_, seconds)| seconds).sum()
}

fn x(second: u64) -> Px {
    px(LEFT + X * second)
}

fn y(permits: u64) -> Px {
    px(BOTTOM.saturating_sub(Y * permits))
}

/// A line, and its place in the legend.
fn line(svg: &mut Svg, (class, name): (&str, &str), points: &[(Px, Px)], at: u64) {
    svg.path(class, &steps(px(LEFT), points.iter().copied()));
    let (x, y) = (LEFT + X * seconds() + 6, 60 + 20 * at);
    svg.path(class, &format!("M{x} {y}h18"));
    svg.text("small", px(x + 22), px(y + 4), name);
}
