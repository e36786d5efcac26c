//! The examples of the README: each is served here and receives requests.
//!
//! The code of an example is the beginning of a file. A test compares it with the README.
#![cfg(feature = "axum")]

mod first;
#[cfg(feature = "redis")]
mod fleet;
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod redis_server;
mod routes;
mod support;

const README: &str = include_str!("../../README.md");
const FILES: [&str; 3] = [
    include_str!("first.rs"),
    include_str!("routes.rs"),
    include_str!("fleet.rs"),
];

#[test]
fn files_begin_with_the_examples_of_the_readme() {
    let examples = README.split("```rust\n").skip(1);
    let examples: Vec<_> = examples.map(|rest| rest.split("```").next()).collect();
    let codes = FILES.map(|file| file.split("\n// ----").next());
    assert_eq!(examples, codes);
}
