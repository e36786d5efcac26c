//! The first examples of pages of the guide: each is served here and receives requests. Those of the README run in
//! `packaged`.
//!
//! The code of an example is the beginning of a file. A test compares it with the page.
#![cfg(feature = "axum")]

#[cfg(feature = "redis")]
mod fleet;
mod routes;
mod support;

#[cfg(feature = "redis")]
use test_support::redis_server;

/// Pages, and the files that begin with their first example.
const EXAMPLES: [(&str, &str); 2] = [
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
        let example = page.split("```rust\n").nth(1);
        let example = example.and_then(|rest| rest.split("```").next());
        assert_eq!(example, file.split("\n// ----").next());
    }
}
