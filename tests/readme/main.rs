//! The first examples of the README and of pages of the guide: each is served here and receives
//! requests.
//!
//! The code of an example is the beginning of a file. A test compares it with the page.
#![cfg(feature = "axum")]

mod first;
#[cfg(feature = "redis")]
mod fleet;
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod redis_server;
mod routes;
#[cfg(feature = "redis")]
mod service;
mod support;

/// Pages, and the files that begin with their first example.
const EXAMPLES: [(&str, &str); 3] = [
    (include_str!("../../README.md"), include_str!("first.rs")),
    (
        include_str!("../../docs/choosing.md"),
        include_str!("routes.rs"),
    ),
    (
        include_str!("../../docs/stores.md"),
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

#[test]
fn the_readme_has_two_examples() {
    let readme = EXAMPLES[0].0;
    assert_eq!(readme.matches("```rust").count(), 2);
    // Needs a feature, so that rustdoc does not compile it.
    let second = readme.split("```rust,ignore\n").nth(1);
    let second = second.and_then(|rest| rest.split("```").next());
    let file = include_str!("service.rs");
    assert_eq!(second, file.split("\n// ----").next());
}
