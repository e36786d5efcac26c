//! The picture: the limits of the adaptive algorithms, and the workers that the server has.

use std::fmt::Write;

use crate::simulation::PHASES;

const WIDTH: u64 = 940;
const HEIGHT: u64 = 320;
/// Pixels per second, and per permit.
const X: u64 = 3;
const Y: u64 = 2;
const LEFT: u64 = 50;
const BOTTOM: u64 = 270;

/// Limits, second by second.
struct Line<'a> {
    name: &'a str,
    color: &'a str,
    limits: &'a [u64],
}

/// The limits of Gradient2 for requests that take equally long, and for others. The same bytes for the
/// same limits.
pub(crate) fn picture(limits: &[Vec<u64>; 2]) -> String {
    let names = [
        ("Gradient2, 100 ms", "#c60"),
        ("Gradient2, 50 to 150 ms", "#06c"),
    ];
    let lines = names.iter().zip(limits);
    let lines = lines.map(|((name, color), limits)| Line {
        name,
        color,
        limits,
    });
    svg(&lines.collect::<Vec<_>>())
}

fn svg(lines: &[Line<'_>]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for permits in (0..=120).step_by(20) {
        let y = height(permits);
        let right = LEFT + X * seconds();
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{permits}</text>",
            LEFT - 6,
            y + 4
        );
    }
    for second in (0..=seconds()).step_by(60) {
        let x = LEFT + X * second;
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{second} s</text>",
            BOTTOM + 18
        );
    }
    let mut workers = String::new();
    let mut second = 0;
    for (many, length) in PHASES {
        let (from, y) = (LEFT + X * second, height(many as u64));
        second += length;
        let to = LEFT + X * second;
        let start = if workers.is_empty() { "M" } else { "L" };
        let _ = write!(workers, "{start}{from} {y}H{to}");
    }
    path(&mut svg, "workers of the server", "black", &workers, 0);
    for (at, line) in (1..).zip(lines) {
        let mut points = String::new();
        for (second, limit) in (1..).zip(line.limits) {
            let start = if points.is_empty() { "M" } else { "L" };
            let _ = write!(points, "{start}{} {}", LEFT + X * second, height(*limit));
        }
        path(&mut svg, line.name, line.color, &points, at);
    }
    svg.push_str("</svg>\n");
    svg
}

fn seconds() -> u64 {
    PHASES.iter().map(|(_, seconds)| seconds).sum()
}

fn height(permits: u64) -> u64 {
    BOTTOM.saturating_sub(Y * permits)
}

/// A line and its name in the legend.
fn path(svg: &mut String, name: &str, color: &str, points: &str, at: u64) {
    let (x, y) = (LEFT + X * seconds() + 10, 60 + 20 * at);
    let _ = writeln!(
        svg,
        "<path d=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>\
         <text x=\"{x}\" y=\"{y}\" fill=\"{color}\">{name}</text>"
    );
}
