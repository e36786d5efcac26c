//! Runs recorded traffic through a policy in virtual time and says what would have happened.
//!
//! "What would 10 per second with bursts of 50 have done to yesterday's traffic?"
//!
//! ```text
//! cargo run --release --example replay -- CASE.jsonl              # one decision per line
//! cargo run --release --example replay -- --summary CASE.jsonl
//! cargo run --release --example replay -- --svg out.svg CASE.jsonl
//! cargo run --release --example replay -- --policy POLICY.json --access-log access.log
//! cargo run --release --example replay --features redis -- --redis redis://127.0.0.1:6379 CASE.jsonl
//! cargo run --release --example replay -- --help                  # the format of a trace
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    replay::program()
}
