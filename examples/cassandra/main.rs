//! One limit for two machines: `cargo run --example cassandra --features cassandra -- localhost:9042 app.limits`
//!
//! It needs a node of Cassandra or ScyllaDB (`docker run --rm -p 9042:9042 cassandra:5`), and a
//! keyspace: `CREATE KEYSPACE app WITH replication = {'class': 'SimpleStrategy',
//! 'replication_factor': 1}`. A user and a password may follow the table. The program makes the table,
//! and two limiters as two machines of a fleet would. It asks them in turn and prints the decisions:
//! what one admits counts in the other.

use std::{error::Error, time::Duration};

use scylla::client::session_builder::SessionBuilder;
use tower_throttle::{
    Quota, RateLimited, SlidingLog,
    store::{
        Backend,
        cas::{Cas, cassandra::Cassandra},
    },
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let node = arguments
        .next()
        .unwrap_or_else(|| "localhost:9042".to_owned());
    let table = arguments.next().unwrap_or_else(|| "app.limits".to_owned());
    let mut builder = SessionBuilder::new().known_node(&node);
    if let (Some(user), Some(password)) = (arguments.next(), arguments.next()) {
        builder = builder.user(user, password);
    }
    let open = || Cassandra::with_builder(builder.clone()).table(&table);
    let store = open()?;
    print!("{}", store.migration());
    store.create_table().await?;

    // A store of its own for each machine, with its own session.
    let mut machines = Vec::new();
    for name in ["machine 1", "machine 2"] {
        let log = SlidingLog::new(Quota::per_minute(5));
        // A lightweight transaction takes several round trips between the nodes.
        let limit = Cas::new(open()?, "login", log)?.deadline(Duration::from_secs(2));
        machines.push((name, limit));
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
