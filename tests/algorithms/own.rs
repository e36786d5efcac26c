//! The example of an algorithm of one's own works in a limiter, a table and a layer.

#[path = "../../examples/tower/own_algorithm.rs"]
mod own_algorithm;

#[test]
fn an_algorithm_of_ones_own_works_in_a_limiter_a_table_and_a_layer() {
    own_algorithm::main();
}

#[test]
fn an_algorithm_of_ones_own_takes_less_than_60_lines() {
    let source = include_str!("../../examples/tower/own_algorithm.rs");
    let lines = source
        .lines()
        .skip_while(|line| *line != "#[derive(Clone, Debug)]");
    let lines = lines.take_while(|line| !line.starts_with("#[tokio::main"));
    assert!((30..60).contains(&lines.count()));
}
