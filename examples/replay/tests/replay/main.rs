//! The example `replay` as a program: text in, text out.

mod access_log;
mod bad_input;
mod chart;
mod command;
mod harness;
mod operations;
mod pictures;
mod summary;
mod text;
