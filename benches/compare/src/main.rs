//! Figures of this crate and of others on the same work, in one process.
//!
//! ```text
//! cargo run --release -p compare -- table            all rows, a few minutes
//! cargo run --release -p compare -- table --quick    fewer rounds, fewer keys
//! cargo run --release -p compare -- table --json     one object a row
//! cargo run --release -p compare -- queue            100,000 who wait; the same options
//! ```
//!
//! Every row runs both sides in turn, several rounds; a figure is the median, beside the least and
//! the most. Only ratios are worth comparing, and only within one run.

mod keys;
mod peers;
mod queue;
mod row;
mod table;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let effort = row::Effort {
        quick: has("--quick"),
        json: has("--json"),
        only: arguments
            .iter()
            .position(|argument| argument == "--only")
            .and_then(|at| arguments.get(at + 1).cloned()),
    };
    match arguments.first().map(String::as_str) {
        Some("table") => table::run(&effort),
        Some("queue") => queue::run_all(&effort),
        _ => {
            eprintln!("usage: compare table|queue [--quick] [--json] [--only TEXT]");
            std::process::exit(2);
        }
    }
}
