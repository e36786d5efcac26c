//! The chart.

use std::fs;

use crate::harness::{TOKENS, file, printed};

/// The chart of a trace, which `--summary` prints as well.
fn chart(name: &str, lines: &[&str]) -> String {
    let path = file(name, "");
    printed(&["--summary", "--svg", &path], lines);
    fs::read_to_string(&path).expect("the chart")
}

/// The points of the shape with this class; empty if there is none.
fn shape<'a>(svg: &'a str, class: &str) -> &'a str {
    let start = format!("<path class=\"{class}\" d=\"");
    let shapes = svg.lines().filter_map(|line| line.strip_prefix(&*start));
    // Those of the legend come first or last; the longest is that of the plot.
    let points = shapes.filter_map(|rest| rest.split_once('"'));
    let points = points.map(|(points, _)| points);
    points.max_by_key(|points| points.len()).unwrap_or_default()
}

#[test]
fn the_chart_names_policy_and_series_beside_decisions_or_summary() {
    let path = file("chart.svg", "");
    // Ten times longer than the initial bins, with a pause.
    let steps: Vec<String> = (0..30_000)
        .map(|t| {
            format!(
                r#"{{"t_ns":{},"op":"acquire","max_wait_ns":500}}"#,
                t + t / 15_000 * 50_000
            )
        })
        .collect();
    let lines: Vec<&str> = [TOKENS]
        .into_iter()
        .chain(steps.iter().map(|step| &**step))
        .collect();

    let decisions = printed(&["--svg", &path], &lines);
    assert_eq!(decisions.lines().count(), 30_000);
    let svg = fs::read_to_string(&path).expect("the chart");
    let summary = printed(&["--summary", "--svg", &path], &lines);
    assert!(summary.starts_with("policy"));
    assert_eq!(fs::read_to_string(&path).expect("the chart"), svg);

    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for text in [
        "offered",
        "admitted",
        "denied",
        "limit 1/100ns",
        "token_bucket 1/100ns; burst=2",
        "units per second",
        "units waiting",
        "time since the first step, us",
    ] {
        assert!(
            svg.contains(&format!(">{text}</text>")),
            "no {text} in {svg}"
        );
    }
    for class in [
        "offered",
        "line admitted",
        "line denied",
        "waiting",
        "limit",
    ] {
        assert!(!shape(&svg, class).is_empty(), "no {class}");
    }
    assert!(chart("empty.svg", &[TOKENS]).contains("offered"));
}

#[test]
fn the_description_says_what_a_queue_served_and_how_deep_it_was() {
    let policy = r#"{"algorithm":"leaky_bucket","limit":10,"period_ns":1000000000,"burst":1,"queue":223,"max_wait_ns":250000000000}"#;
    let steps = vec![r#"{"t_ns":0}"#; 225];
    let svg = chart("queue.svg", &[&[policy], &*steps].concat());
    let words = "Units over 22.4 s. Keys: 1. Offered: 225. Admitted, at once or after a wait: \
                 224. Denied: 1. Most units waiting at one time: 223.";
    assert!(svg.contains(&format!("<desc>{words}</desc>")), "{svg}");
    assert!(
        svg.contains(">leaky_bucket 10/s; burst=1; max_wait=250s; queue=223<"),
        "{svg}"
    );
}

#[test]
fn the_limit_line_is_at_the_height_of_a_stream_at_the_limit() {
    // 3 us at one unit per 100 ns.
    let policy = r#"{"algorithm":"leaky_bucket","limit":1,"period_ns":100,"queue":29}"#;
    let steps = vec![r#"{"t_ns":0}"#; 30];
    let svg = chart("limit.svg", &[&[policy], &*steps].concat());
    let height = |class| {
        let points = shape(&svg, class).trim_start_matches(|c| c != ' ');
        let end = points.find(['H', 'V']).unwrap_or(points.len());
        points[1..end].to_owned()
    };
    assert!(height("limit").parse::<f32>().is_ok(), "{svg}");
    assert_eq!(height("limit"), height("line admitted"), "{svg}");

    // A limit far above the traffic is named and not drawn.
    let high = r#"{"algorithm":"token_bucket","limit":1000,"period_ns":1000000000}"#;
    let steps: Vec<String> = (1..91)
        .map(|s| format!(r#"{{"t_ns":{s}000000000}}"#))
        .collect();
    let steps = steps.iter().map(|step| &**step);
    let svg = chart(
        "high.svg",
        &[high].into_iter().chain(steps).collect::<Vec<_>>(),
    );
    assert!(svg.contains(">limit 1000/s, above this chart<"), "{svg}");
    assert!(shape(&svg, "limit").len() < 12, "{svg}");
}

#[test]
fn several_keys_have_a_limit_each() {
    let steps = [r#"{"t_ns":0,"key":"a"}"#, r#"{"t_ns":50,"key":"b"}"#];
    let svg = chart("keys.svg", &[&[TOKENS], &steps[..]].concat());
    assert!(svg.contains(">limit 1/100ns per key<"), "{svg}");
    assert!(svg.contains("Keys: 2."), "{svg}");
}
