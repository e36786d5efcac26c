//! Runs the code in the pages of the guide. The crate itself does not: the pages show other crates too.

#[cfg(doctest)]
#[path = "../../../src/guide.rs"]
mod guide;
