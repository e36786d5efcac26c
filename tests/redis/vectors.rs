//! The test suites of other limiters, decided by the scripts on a server.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::redis_server::RedisServer;
use crate::shared_vectors::{cases, fault, lines};

/// Redis converts a key to another quota in one way, and refuses the other ways.
const REFUSED: [&str; 3] = [
    "bucket4j-token_bucket-replace-additive-raise",
    "bucket4j-token_bucket-replace-proportional-reduce",
    "bucket4j-token_bucket-replace-proportional-rounding",
];

fn name(case: &Path) -> String {
    let name = case.file_stem().expect("a file");
    name.to_string_lossy().into_owned()
}

fn size(server: &RedisServer) -> u64 {
    let count = redis::cmd("DBSIZE");
    count.query(&mut server.connection()).expect("a count")
}

#[test]
fn every_case_of_the_peers_is_reproduced_by_the_scripts() {
    let server = RedisServer::start();
    let url = server.url();
    let (mut faults, mut refused, mut replayed) = (Vec::new(), 0, 0);
    for case in cases() {
        let fault = fault(&case, &["--redis", &url]);
        match fault {
            None => replayed += 1,
            Some(fault) if REFUSED.contains(&&*name(&case)) => {
                assert!(
                    fault.contains("expected as_is or reset in Redis"),
                    "{fault}"
                );
                refused += 1;
            }
            Some(fault) => faults.push(format!("{}: {fault}", name(&case))),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(refused == REFUSED.len() && replayed >= 96, "{replayed}");
    assert_eq!(size(&server), 0, "a replay leaves nothing behind");
    assert!(
        crate::calls_of(&server, "evalsha") > 15_000,
        "the server was called"
    );
}

#[test]
fn a_wrong_quota_is_found_for_each_algorithm() {
    let server = RedisServer::start();
    let url = server.url();
    let algorithms = [
        "fixed_window",
        "sliding_log",
        "sliding_window_counter",
        "sliding_grid",
        "gcra",
        "leaky_bucket_meter",
        "leaky_bucket_queue",
        "warm_up",
    ];
    for algorithm in algorithms {
        let start = format!("random-{algorithm}-");
        let case = cases()
            .into_iter()
            .find(|case| name(case).starts_with(&start));
        let text = fs::read_to_string(case.expect("a case")).expect("a readable case");
        let (policy, steps) = text.split_once('\n').expect("a policy first");
        let mut policy: Value = lines(policy).remove(0);
        // Stands for a script that admits one unit too many.
        for field in ["limit", "burst"] {
            if let Some(most) = policy.get(field).and_then(Value::as_u64) {
                policy[field] = Value::from(most + 1);
            }
        }
        let altered = format!("tower-throttle-{}-{algorithm}.jsonl", std::process::id());
        let altered = std::env::temp_dir().join(altered);
        fs::write(&altered, format!("{policy}\n{steps}")).expect("a writable folder");
        let found = fault(&altered, &["--redis", &url]);
        fs::remove_file(&altered).expect("it was written above");
        assert!(
            found.is_some(),
            "{algorithm}: one unit too many was not found"
        );
    }
}
