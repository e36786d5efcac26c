//! Draws the chart as SVG.

use std::{error::Error, time::Duration};

use plotters::{
    prelude::{
        AreaSeries, ChartBuilder, Color, IntoDrawingArea, LineSeries, Rectangle, SVGBackend,
        SeriesLabelPosition,
    },
    style::{RGBColor, WHITE},
};

use crate::{
    chart::Chart,
    tally::{Count, Tally},
};

const SIZE: (u32, u32) = (1200, 600);
/// Okabe and Ito's colors, which color-blind people can distinguish.
const OFFERED: RGBColor = RGBColor(150, 150, 150);
const LINES: [Line; 3] = [
    Line {
        name: "admitted",
        color: RGBColor(0, 114, 178),
        count: |bin| bin.admitted,
    },
    Line {
        name: "waiting",
        color: RGBColor(230, 159, 0),
        count: |bin| bin.waited,
    },
    Line {
        name: "denied",
        color: RGBColor(213, 94, 0),
        count: |bin| bin.denied,
    },
];

struct Line {
    name: &'static str,
    color: RGBColor,
    count: fn(&Tally) -> Count,
}

/// Units of time and their lengths in nanoseconds.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The chart as an SVG document.
pub(crate) fn svg(chart: &Chart, title: &str) -> Result<String, String> {
    let mut svg = String::new();
    draw(chart, title, &mut svg).map_err(|error| format!("cannot draw the chart: {error}"))?;
    Ok(svg)
}

fn draw(chart: &Chart, title: &str, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let bins = u64::try_from(chart.bins.len())?;
    let axis = Axis::up_to(chart.width.saturating_mul(bins.max(1)));
    let end = axis.position(chart.width.saturating_mul(bins)).max(1);
    let top = chart.bins.iter().map(|bin| bin.offered.units).max();
    // Leave space for the legend above the highest value.
    let top = top.unwrap_or_default().max(1);
    let top = top + top.div_ceil(6);
    // Steps: the units of a bin came at any time within it.
    let steps = |count: fn(&Tally) -> Count| {
        (0u64..).zip(&chart.bins).flat_map(move |(bin, tally)| {
            [bin, bin + 1].map(|edge| {
                let at = axis.position(chart.width.saturating_mul(edge));
                (at, count(tally).units)
            })
        })
    };

    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut plot = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(15)
        .x_label_area_size(45)
        .y_label_area_size(90)
        .build_cartesian_2d(0..end, 0..top)?;
    plot.configure_mesh()
        // One per bold line, which hides it. With zero, plotters does not terminate.
        .max_light_lines(1)
        .label_style(("sans-serif", 15))
        .x_labels(20)
        .x_desc(format!("time since the first step, {}", axis.unit))
        .x_label_formatter(&|at| axis.label(*at))
        .y_label_formatter(&|units| short(*units))
        .y_desc(format!(
            "units in each {:.1?}",
            Duration::from_nanos(chart.width)
        ))
        .draw()?;

    // First, so that the lines are drawn over it.
    plot.draw_series(AreaSeries::new(
        steps(|bin| bin.offered),
        0,
        OFFERED.mix(0.35),
    ))?
    .label("offered")
    .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 20, y + 5)], OFFERED.mix(0.35).filled()));
    for Line { name, color, count } in LINES {
        plot.draw_series(LineSeries::new(steps(count), color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 1), (x + 20, y + 1)], color.filled()));
    }
    plot.configure_series_labels()
        .label_font(("sans-serif", 16))
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(OFFERED)
        .draw()?;
    area.present()?;
    Ok(())
}

/// Time in a unit that fits the length of the trace. Positions are thousandths of the unit, so that
/// round positions have short labels; nanoseconds are whole.
#[derive(Clone, Copy)]
struct Axis {
    unit: &'static str,
    /// Nanoseconds per position, and positions per unit.
    grain: u64,
    grains: u64,
}

impl Axis {
    fn up_to(ns: u64) -> Self {
        let fits = |(_, length): &(&str, u64)| ns / 2 >= *length;
        let (unit, length) = UNITS.into_iter().find(fits).unwrap_or(("ns", 1));
        let grains = length.min(1000);
        Self {
            unit,
            grain: length / grains,
            grains,
        }
    }

    fn position(&self, ns: u64) -> u64 {
        ns / self.grain
    }

    fn label(&self, at: u64) -> String {
        let (whole, part) = (at / self.grains, at % self.grains);
        if part == 0 {
            return whole.to_string();
        }
        let digits = format!("{part:03}");
        format!("{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// A short form of a count: `25000`, `1.5e9`.
fn short(units: u128) -> String {
    if units < 1_000_000 {
        units.to_string()
    } else {
        format!("{units:e}")
    }
}
