//! Draws the chart as SVG: rates above, the depth of the queue below.

use crate::{
    answer::nanos,
    axis::{Time, rate_unit, round_step, short},
    chart::{Chart, Column, View},
    svg::{Px, Svg, area, px, steps},
};

const WIDTH: u64 = 960;
const LEFT: u64 = 80;
const RIGHT: u64 = 930;
/// Above it are the title and the legend.
const TOP: u64 = 76;
/// The heights of the upper and the lower plot.
const RATES: u64 = 280;
const QUEUE: u64 = 110;
const GAP: u64 = 34;

/// The units of a column that a line shows.
type Units = fn(&Column) -> u128;

/// A plot: where it is, and the value at its top.
struct Plot {
    top: u64,
    height: u64,
    most: u128,
}

impl Plot {
    fn bottom(&self) -> Px {
        px(self.top + self.height)
    }

    /// The height of `part / whole`.
    fn y(&self, part: u128, whole: u128) -> Px {
        let tall = u128::from(self.height * 10);
        let up = part.saturating_mul(tall) / whole.saturating_mul(self.most).max(1);
        let up = u64::try_from(up.min(tall)).unwrap_or_default();
        Px(self.bottom().0 - up)
    }

    /// Lines with labels, and what is measured.
    fn grid(&self, svg: &mut Svg, what: &str) {
        let step = round_step(self.most, u128::from(self.height / 50).max(2));
        let mut value = 0;
        while value <= self.most {
            let y = self.y(value, 1);
            svg.path("grid", &format!("M{LEFT} {y}H{RIGHT}"));
            let label = Px(y.0 + 40);
            svg.text("end", px(LEFT - 8), label, &short(value));
            value += step;
        }
        svg.text_upwards(px(20), px(self.top + self.height / 2), what);
    }
}

/// The chart as an SVG document.
pub(crate) fn svg(chart: &Chart, title: &str) -> String {
    let view = chart.view();
    let waits = view.columns.iter().any(|column| column.waiting > 0);
    let height = TOP + RATES + if waits { GAP + QUEUE } else { 0 } + 50;
    let mut svg = Svg::new(WIDTH, height, title, &in_words(chart, &view));
    svg.text("title", px(LEFT), px(28), title);

    let bottom = rates(&mut svg, &view, chart.keys);
    let bottom = if waits {
        let columns = view.columns.iter();
        let most = columns.map(|column| column.waiting).max();
        let queue = Plot {
            top: bottom + GAP,
            height: QUEUE,
            most: rounded_up(most.unwrap_or_default(), 2),
        };
        queue.grid(&mut svg, "units waiting");
        let waiting = heights(&view, |column| queue.y(column.waiting, 1));
        svg.path("waiting", &area(px(LEFT), queue.bottom(), &waiting));
        queue.top + queue.height
    } else {
        bottom
    };
    times(&mut svg, &view, bottom);
    svg.end()
}

/// Draws the upper plot; returns where it ends.
fn rates(svg: &mut Svg, view: &View, keys: usize) -> u64 {
    let most = |column: &Column| column.offered.max(column.admitted).max(column.denied);
    let peak = view.columns.iter().map(most).max().unwrap_or_default();
    let (unit, unit_ns) = rate_unit(peak, view.width);
    let (unit_ns, width) = (u128::from(unit_ns), u128::from(view.width));
    let peak = peak.saturating_mul(unit_ns).div_ceil(width).max(1);
    let limits = view.quotas.iter().map(|(at, quota)| {
        let units = u128::from(quota.limit()) * unit_ns;
        (*at, units, u128::from(nanos(quota.period()).max(1)))
    });
    let limits: Vec<_> = limits.collect();
    // A limit far above all traffic would flatten the traffic.
    let highest = limits
        .iter()
        .map(|(_, units, ns)| units.div_ceil(*ns))
        .max();
    let shown = highest.filter(|highest| *highest <= peak.saturating_mul(3));
    let plot = Plot {
        top: TOP,
        height: RATES,
        most: rounded_up(peak.max(shown.unwrap_or_default()), 5),
    };
    plot.grid(svg, &format!("units per {unit}"));

    let level = |units: u128| plot.y(units.saturating_mul(unit_ns), width);
    let offered = heights(view, |column| level(column.offered));
    svg.path("offered", &area(px(LEFT), plot.bottom(), &offered));
    let lines: [(&str, Units); 2] = [
        ("line denied", |column| column.denied),
        ("line admitted", |column| column.admitted),
    ];
    for (class, units) in lines {
        let line = heights(view, |column| level(units(column)));
        svg.path(class, &steps(px(LEFT), line));
    }
    if shown.is_some() {
        let ends = limits.iter().skip(1).map(|(at, ..)| x(view, *at));
        let ends = ends.chain([px(RIGHT)]);
        let line = ends.zip(&limits);
        let line = line.map(|(end, (_, units, ns))| (end, plot.y(*units, *ns)));
        svg.path("limit", &steps(px(LEFT), line));
    }
    legend(svg, view, keys, shown.is_some());
    plot.top + plot.height
}

fn legend(svg: &mut Svg, view: &View, keys: usize, is_limit_shown: bool) {
    let limit = view.quotas.last().map(|(_, quota)| {
        let text = quota.to_string();
        let rate = text.split(';').next().unwrap_or_default();
        let per_key = if keys > 1 { " per key" } else { "" };
        let above = if is_limit_shown {
            ""
        } else {
            ", above this chart"
        };
        format!("limit {rate}{per_key}{above}")
    });
    let mut left = LEFT;
    let entries = [
        ("offered", Some("offered".to_owned())),
        ("line admitted", Some("admitted".to_owned())),
        ("line denied", Some("denied".to_owned())),
        ("limit", limit),
    ];
    for (class, text) in entries {
        let Some(text) = text else { continue };
        let sample = match class {
            "offered" => format!("M{left} 44h26v12h-26Z"),
            _ => format!("M{left} 50h26"),
        };
        svg.path(class, &sample);
        svg.text("", px(left + 34), px(54), &text);
        left += 34 + 7 * text.chars().count() as u64 + 26;
    }
}

/// Draws the time axis below `bottom`.
fn times(svg: &mut Svg, view: &View, bottom: u64) {
    let length = length(view);
    let time = Time::up_to(length, 12);
    let mut at = 0;
    while at <= length {
        let x = x(view, at);
        svg.path("grid", &format!("M{x} {bottom}v5"));
        svg.text("middle", x, px(bottom + 20), &time.label(at));
        at = at.saturating_add(time.step.max(1));
        if at == u64::MAX {
            break;
        }
    }
    let what = format!("time since the first step, {}", time.unit);
    let middle = u64::midpoint(LEFT, RIGHT);
    svg.text("middle", px(middle), px(bottom + 40), &what);
}

/// What the chart shows, in words.
fn in_words(chart: &Chart, view: &View) -> String {
    let sum = |units: Units| view.columns.iter().map(units).sum::<u128>();
    let time = Time::up_to(length(view), 12);
    let most = view.columns.iter().map(|column| column.waiting).max();
    format!(
        "Units over {} {}. Keys: {}. Offered: {}. Admitted, at once or after a wait: {}. \
         Denied: {}. Most units waiting at one time: {}.",
        time.label(length(view)),
        time.unit,
        chart.keys,
        sum(|column| column.offered),
        sum(|column| column.admitted),
        sum(|column| column.denied),
        most.unwrap_or_default()
    )
}

/// The right edge and the height of each column.
fn heights(view: &View, y: impl Fn(&Column) -> Px) -> Vec<(Px, Px)> {
    let edges = (1..).map(|column: u64| x(view, view.width.saturating_mul(column)));
    edges.zip(view.columns.iter().map(y)).collect()
}

fn x(view: &View, at: u64) -> Px {
    let across = u128::from(at) * u128::from((RIGHT - LEFT) * 10) / u128::from(length(view));
    Px(LEFT * 10 + u64::try_from(across).unwrap_or_default()).min(px(RIGHT))
}

fn length(view: &View) -> u64 {
    view.width.saturating_mul(view.columns.len().max(1) as u64)
}

/// A value at or above `most` that has a label.
fn rounded_up(most: u128, steps: u128) -> u128 {
    let step = round_step(most.max(1), steps);
    most.max(1).div_ceil(step) * step
}
