//! Holds the tests in `tests/`.
