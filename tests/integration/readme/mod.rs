//! The first examples of the README and of pages of the guide: each is served here and receives
//! requests.
//!
//! The code of an example is the beginning of a file. A test compares it with the page.
#![cfg(feature = "axum")]

#[expect(dead_code, reason = "its `main` listens on a fixed port")]
mod first;
#[cfg(feature = "redis")]
mod fleet;
mod routes;
#[cfg(feature = "redis")]
#[expect(dead_code, reason = "its `main` listens on a fixed port")]
mod service;
mod support;

#[cfg(feature = "redis")]
use test_support::redis_server;

/// Pages, and the files that begin with their first example.
const EXAMPLES: [(&str, &str); 3] = [
    (include_str!("../../../README.md"), include_str!("first.rs")),
    (
        include_str!("../../../docs/choosing.md"),
        include_str!("routes.rs"),
    ),
    (
        include_str!("../../../docs/stores.md"),
        include_str!("fleet.rs"),
    ),
];

/// Shows promise 101.
#[test]
fn files_begin_with_the_first_examples_of_the_pages() {
    for (page, file) in EXAMPLES {
        // That of the README serves until it is stopped.
        let page = page.replace("```rust,no_run", "```rust");
        let example = page.split("```rust\n").nth(1);
        let example = example.and_then(|rest| rest.split("```").next());
        assert_eq!(example, file.split("\n// ----").next());
    }
}

/// The lines of a response that the README shows below an example, but for its date.
fn shown(example: usize) -> impl Iterator<Item = &'static str> {
    let block = EXAMPLES[0].0.split("```text\n$ curl ").nth(example + 1);
    let block = block.and_then(|rest| rest.split("\n```").next());
    let lines = block.expect("what curl prints").lines().skip(1);
    let lines = lines.map(|line| line.find("HTTP/1.1").map_or(line, |at| &line[at..]));
    lines.filter(|line| !line.starts_with("date: "))
}
