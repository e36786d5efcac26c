//! The example of a custom algorithm works in a limiter, a table and a layer.

#[path = "../../examples/tower/own_algorithm.rs"]
mod own_algorithm;

#[test]
fn a_custom_algorithm_works_in_a_limiter_a_table_and_a_layer() {
    own_algorithm::main();
}

#[test]
fn a_custom_algorithm_takes_less_than_60_lines() {
    let source = include_str!("../../examples/tower/own_algorithm.rs");
    let lines = source
        .lines()
        .skip_while(|line| *line != "#[derive(Clone, Debug)]");
    let lines = lines.take_while(|line| !line.starts_with("#[tokio::main"));
    assert!((30..60).contains(&lines.count()));
}
