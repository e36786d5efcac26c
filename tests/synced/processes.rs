//! Processes that share limits in a real server stay within the bounds.

use std::process::Command;

use crate::INTERVAL;
use crate::fleet::{Extent, Job, LIMIT, run_fleet, run_machine};

/// The body of each process.
#[test]
#[ignore = "a process that the tests below start"]
fn one_process() {
    assert!(
        run_machine(),
        "this test is a process that another test starts: run `cargo test --all-features --test synced processes`"
    );
}

fn check(url: &str, machines: u64) {
    let job = Job {
        url: url.to_owned(),
        extent: Extent::Short,
        machines,
        interval: INTERVAL,
        seconds: 3,
    };
    let admitted = run_fleet(&job, || {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args([
            "processes::one_process",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        command
    });
    for admitted in admitted {
        let case = &admitted.case;
        assert!(
            admitted.excess <= admitted.bound,
            "{machines} machines, {}: {admitted:?}",
            case.name
        );
        // Requests of a machine with a budget may wait for longer than the deadline.
        let least = if case.strict.is_some() { 1 } else { LIMIT };
        assert!(admitted.total >= least, "{admitted:?}");
    }
}

#[test]
fn processes_over_redis_stay_within_the_bounds() {
    let server = crate::redis_server::RedisServer::start();
    for machines in [2, 4] {
        check(&server.url(), machines);
    }
}

#[test]
fn processes_over_postgresql_stay_within_the_bounds() {
    let server = crate::postgres_server::PostgresServer::start();
    let store = tower_throttle::store::cas::postgres::PostgreSql::open(&server.url());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let made = runtime.block_on(store.expect("a URL").create_table());
    made.expect("a table");
    check(&server.url(), 2);
}
