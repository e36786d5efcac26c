//! Compares this crate with others on the same work, in one process.
//!
//! ```text
//! cargo run --release -p compare -- table            all rows of the table, a few minutes
//! cargo run --release -p compare -- layer            the layer around a service that does nothing
//! cargo run --release -p compare -- axum             a local server, with and without a limit
//! cargo run --release -p compare -- table --quick    fewer rounds, fewer keys
//! cargo run --release -p compare -- table --json     one JSON object per row
//! cargo run --release -p compare -- queue            100,000 queued requests; the same options
//! cargo run --release -p compare -- redis            decisions in Redis; needs redis-server
//! cargo run --release -p compare -- redis-memory     bytes per key in Redis; needs redis-server
//! cargo run --release -p compare -- stores           decisions in PostgreSQL and Cassandra, which it needs
//! cargo run --release -p compare -- fleet            1 to 64 machines on one store, 15 minutes; needs redis-server and
//!                                                    PostgreSQL
//! cargo run --release -p compare -- fleet --only "| load | Synced"
//! cargo run --release -p compare -- lists            addresses in 100,000 networks, beside prefix-trie
//! cargo run --release -p compare -- lockout          a lockout beside a log with as many places
//! cargo run --release -p compare -- concurrency      what a permit adds to a request, also one of a fleet; needs
//!                                                    redis-server and PostgreSQL
//! cargo run --release -p compare -- connections      connections per second, with a limit and without
//! cargo run --release -p compare -- streams          bytes of bodies: CPU per GB, pacing error
//! cargo run --release -p compare -- size             bytes and crates that a layer adds
//! cargo run --release -p compare -- table --only IpAddr
//! cargo run --release -p compare -- soak [SECONDS]   ten minutes of load; fails if memory grows
//! ```
//!
//! Every row runs both sides in turn for several rounds and prints the median, the minimum and the
//! maximum. Compare only ratios, and only within one run.

#![expect(clippy::disallowed_methods, reason = "this program measures time")]

mod abuse;
mod connections;
mod count;
mod fleet;
mod keys;
mod layer;
mod others;
mod peers;
mod permits;
mod queue;
mod redis;
mod redis_memory;
mod row;
mod served;
mod size;
mod soak;
mod stores;
mod streams;
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
        Some("table") => {
            table::run(&effort);
            others::run(&effort);
        }
        Some("layer") => layer::run(&effort),
        Some("axum") => served::run(&effort),
        Some("queue") => queue::run_all(&effort),
        Some("redis") => redis::run(&effort),
        Some("redis-memory") => redis_memory::run(&effort),
        Some("stores") => stores::run(&effort),
        Some("fleet") => fleet::run(&effort),
        Some("lists") => abuse::lists(&effort),
        Some("lockout") => abuse::lockout(&effort),
        Some("concurrency") => {
            abuse::concurrency(&effort);
            permits::run(&effort);
        }
        Some("connections") => connections::run(&effort),
        Some("size") => size::run(&effort),
        Some("streams") => streams::run(&effort),
        Some("soak") => {
            let seconds = arguments.get(1).and_then(|number| number.parse().ok());
            if !soak::run(seconds.unwrap_or(600), has("--leak")) {
                std::process::exit(1);
            }
        }
        _ => {
            eprintln!(
                "usage: compare table|layer|axum|queue|redis|redis-memory|stores|fleet|lists|lockout|concurrency|streams|connections|size [--quick] [--json] [--only TEXT]\n       compare soak [SECONDS] [--leak]"
            );
            std::process::exit(2);
        }
    }
}
