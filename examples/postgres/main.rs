//! One limit for two machines: `cargo run --example postgres --features postgres -- postgres://user@localhost/database`
//!
//! It needs a PostgreSQL server: `docker run --rm -p 5432:5432 -e POSTGRES_PASSWORD=secret postgres`
//! and `postgres://postgres:secret@localhost`. The program makes the table, and two limiters as two
//! machines of a fleet would. It asks them in turn and prints the decisions: what one admits counts
//! in the other.

use std::error::Error;

use tower_throttle::{
    Quota, RateLimited, SlidingLog,
    store::{
        Backend,
        cas::{Cas, postgres::PostgreSql},
    },
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("postgres://postgres@localhost");
    let store = PostgreSql::open(url)?;
    print!("{}", store.migration());
    store.create_table().await?;

    // A store of its own for each machine, with its own connections.
    let mut machines = Vec::new();
    for name in ["machine 1", "machine 2"] {
        let log = SlidingLog::new(Quota::per_minute(5));
        machines.push((name, Cas::new(PostgreSql::open(url)?, "login", log)?));
    }
    // A user of its own for each run, so that runs do not count together.
    let user = format!("user-{}", std::process::id());
    let mut admitted = 0;
    for turn in 0..8 {
        let (name, limit) = &machines[turn % 2];
        let decision = limit.decide(&user, 1).await?;
        let remaining = decision.remaining();
        if decision.is_admitted() {
            println!("{name}  admitted, {remaining} remain");
        } else {
            let seconds = RateLimited::new(decision).retry_after_secs();
            println!("{name}  denied, retry in {} s", seconds.unwrap_or(0));
        }
        admitted += usize::from(decision.is_admitted());
    }
    assert_eq!(admitted, 5);
    Ok(())
}
