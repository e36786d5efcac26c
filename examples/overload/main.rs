//! Limits on concurrency in front of a simulated server whose capacity changes.
//!
//! ```sh
//! cargo run --release --example overload                              # the table
//! cargo run --release --example overload -- Gradient2                 # one row of it
//! cargo run --release --example overload -- --svg docs/img/overload.svg
//! ```

mod chart;
mod simulation;

use std::{env, fs, io};

use simulation::{EQUAL, Limiter, MIXED, PHASES, SETTLING, simulate};

fn main() -> io::Result<()> {
    let limiters = [
        ("no limit", Limiter::None),
        ("tower ConcurrencyLimit(15), LoadShed", Limiter::Tower(15)),
        ("tower ConcurrencyLimit(60), LoadShed", Limiter::Tower(60)),
        ("ConcurrencyLimitLayer::new(Global, 15)", Limiter::Fixed(15)),
        ("ConcurrencyLimitLayer::new(Global, 60)", Limiter::Fixed(60)),
        ("Aimd, latency at most 225 ms", Limiter::Aimd),
        ("Gradient2", Limiter::Gradient2),
    ];
    let workers = PHASES.map(|(workers, _)| workers.to_string()).join(", ");
    println!("A server with {workers} workers in turn, and requests for 75 of them.");
    println!("A request takes 100 ms, or 50 to 150 ms: p99 100 or 149 ms if the server is idle.");
    println!("Served, in percent of what the server can do, and the p99 of latency,");
    println!("both in the worst phase, from {SETTLING} s after the change of capacity on.\n");
    println!("| limit | served, 100 ms | p99 | served, 50 to 150 ms | p99 |");
    println!("|---|---|---|---|---|");
    let mut adaptive = [Vec::new(), Vec::new()];
    let only = env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    for (name, limiter) in limiters {
        if only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let [equal, mixed] = [EQUAL, MIXED].map(|service_ms| simulate(limiter, service_ms));
        let row = [&equal, &mixed].map(|run| {
            let (served, p99) = (run.served, run.p99_ms);
            format!("{served} % | {p99} ms")
        });
        println!("| {name} | {} |", row.join(" | "));
        if limiter == Limiter::Gradient2 {
            adaptive = [equal.limits, mixed.limits];
        }
    }
    let mut args = env::args().skip(1);
    if let (Some("--svg"), Some(path)) = (args.next().as_deref(), args.next()) {
        fs::write(path, chart::picture(&adaptive))?;
    }
    Ok(())
}
