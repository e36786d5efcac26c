//! The chart.

use std::{collections::BTreeSet, fs};

use crate::harness::{TOKENS, file, printed};

#[test]
fn the_chart_names_policy_and_series_beside_decisions_or_summary() {
    let path = file("chart.svg", "");
    // Ten times longer than the initial bins, with a pause.
    let steps: Vec<String> = (0..3_000)
        .map(|t| {
            format!(
                r#"{{"t_ns":{},"op":"acquire","max_wait_ns":500}}"#,
                t + t / 1500 * 5000
            )
        })
        .collect();
    let lines: Vec<&str> = [TOKENS]
        .into_iter()
        .chain(steps.iter().map(|step| &**step))
        .collect();

    let decisions = printed(&["--svg", &path], &lines);
    assert_eq!(decisions.lines().count(), 3_000);
    let svg = fs::read_to_string(&path).expect("the chart");
    let summary = printed(&["--summary", "--svg", &path], &lines);
    assert!(summary.starts_with("policy"));
    assert_eq!(fs::read_to_string(&path).expect("the chart"), svg);

    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for name in [
        "offered",
        "admitted",
        "waiting",
        "denied",
        "token_bucket 1/100ns; burst=2",
    ] {
        assert!(
            svg.contains(&format!("\n{name}\n</text>")),
            "no {name} in the chart"
        );
    }
    assert_eq!(
        svg.matches("<polygon").count(),
        1,
        "the area of what was offered"
    );
    for color in ["#0072B2", "#E69F00", "#D55E00"] {
        let line = svg
            .lines()
            .find(|line| line.starts_with("<polyline") && line.contains(color));
        assert!(line.is_some(), "no line of {color}");
    }
    printed(&["--summary", "--svg", &path], &[TOKENS]);
    assert!(
        fs::read_to_string(&path)
            .expect("the chart")
            .contains("offered"),
        "an empty one"
    );
}

#[test]
fn a_steady_stream_is_flat_after_bins_were_merged() {
    let path = file("steady.svg", "");
    // One unit per nanosecond: 1024 of them are 256 bins of four.
    let steps: Vec<String> = (0..1024).map(|t| format!(r#"{{"t_ns":{t}}}"#)).collect();
    let lines: Vec<&str> = [TOKENS]
        .into_iter()
        .chain(steps.iter().map(|step| &**step))
        .collect();
    printed(&["--summary", "--svg", &path], &lines);
    let svg = fs::read_to_string(&path).expect("the chart");
    let area = svg.lines().find(|line| line.starts_with("<polygon"));
    let (_, points) = area
        .and_then(|area| area.split_once("points=\""))
        .expect("an area");
    let (points, _) = points.split_once('"').expect("an end");
    let heights = points
        .split_whitespace()
        .filter_map(|point| point.split_once(','));
    let heights: BTreeSet<&str> = heights.map(|(_, height)| height).collect();
    assert_eq!(heights.len(), 2, "the bottom and the top: {heights:?}");
    assert!(svg.contains("units in each 4.0ns"));
}
