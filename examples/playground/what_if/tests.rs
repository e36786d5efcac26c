use axum::http::StatusCode;
use serde_json::json;

use super::{log, outcome::Outcome, requests::Requests};
use crate::{app, http_tests::post, policy::Policy, setting::Traffic};

fn traffic(rate: u64, burst: u64, clients: u64) -> Traffic {
    Traffic {
        rate,
        burst,
        clients,
        cost: 1,
        important: 0,
    }
}

fn outcome(policy: &str, requests: &Requests) -> Outcome {
    let policy: Policy = policy.parse().unwrap();
    Outcome::of(&policy, requests)
}

#[test]
fn an_hour_is_decided_by_the_algorithm_itself() {
    let requests = Requests::made(traffic(20, 1, 2), 3_600).unwrap();
    assert_eq!(requests.count(), 72_000);
    // Each client sends 10 per second. 50, then 5 per second.
    let bucket = outcome("token_bucket 5/s; burst=50", &requests);
    assert_eq!(bucket.total.admitted, 2 * (50 + 5 * 3_600 - 1));
    assert_eq!(bucket.total.admitted + bucket.total.denied, 72_000);
    assert_eq!(bucket.busiest.len(), 2);
    assert_eq!(bucket.busiest[0].client, "1");
}

#[test]
fn a_queue_reports_its_longest_wait() {
    let requests = Requests::made(traffic(10, 100, 1), 10).unwrap();
    for (policy, expected, longest) in [
        ("leaky_bucket 10/s; burst=1; queue=30", (1, 30, 69), 3_000),
        (
            "leaky_bucket 10/s; burst=1; queue=30; max_wait=2s",
            (1, 20, 79),
            2_000,
        ),
        ("fixed_window 10/s; queue=25", (10, 25, 65), 3_000),
    ] {
        let queue = outcome(policy, &requests);
        let total = queue.total;
        let counts = (total.admitted, total.queued, total.denied);
        assert_eq!(
            (counts, queue.longest_wait),
            (expected, longest),
            "{policy}"
        );
    }
}

/// The known weakness of fixed windows: twice the limit around the edge of a window.
#[test]
fn the_worst_period_shows_the_edge_of_a_window() {
    // A burst of 30 every 750 ms.
    let requests = Requests::made(traffic(40, 30, 1), 60).unwrap();
    assert_eq!(outcome("fixed_window 10/s", &requests).worst.cost, 20);
    assert_eq!(outcome("sliding_log 10/s", &requests).worst.cost, 10);
}

/// Periods are half open: what was granted one second ago is outside.
#[test]
fn a_limit_that_is_used_up_in_each_period_is_kept() {
    let requests = Requests::made(traffic(10, 10, 1), 60).unwrap();
    let log = outcome("sliding_log 10/s", &requests);
    assert_eq!((log.total.denied, log.worst.cost), (0, 10));
}

#[test]
fn too_many_requests_are_refused() {
    let faults = Requests::made(traffic(500, 1, 1), 86_400).unwrap_err();
    assert_eq!(
        faults[0].message,
        "500 requests per second for 86400 s are 43200000 requests; \
         at most 2000000 are allowed: choose a shorter time or a lower rate"
    );
}

/// Two clients in an access log: one sends five requests in a second, the other one.
const LOG: &str = r#"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
192.0.2.8 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
192.0.2.7 - - [10/Oct/2000:13:55:37 -0700] "GET / HTTP/1.1" 200 2326
"#;

#[test]
fn a_log_is_decided_per_client() {
    let requests = log::read(LOG).unwrap();
    let log = outcome("sliding_log 2/min", &requests);
    assert_eq!((log.total.admitted, log.total.denied), (3, 2));
    assert_eq!(log.busiest[0].client, "192.0.2.7");
    assert_eq!(log.busiest[0].counts.denied, 2);
    assert_eq!(requests.length(), 1_000_000_001);
}

#[tokio::test]
async fn a_log_is_uploaded_and_a_bad_line_is_named() {
    let app = app();
    let question = json!({ "policies": ["sliding_log 2/min", "sliding_log 3/min"], "log": LOG });
    let (status, answer) = post(&app, "/api/what-if", question).await;
    assert_eq!((status, &answer["requests"]), (StatusCode::OK, &json!(5)));
    assert_eq!(
        answer["policies"][1]["total"],
        json!({ "admitted": 4, "queued": 0, "denied": 1 })
    );

    let question = json!({ "policies": ["sliding_log 2/min"], "log": format!("{LOG}hello\n") });
    let (status, answer) = post(&app, "/api/what-if", question).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let message = answer["faults"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("line 6: expected a client's address"),
        "{message}"
    );
}

/// The chart adds up to the totals.
#[tokio::test]
async fn traffic_of_a_minute_is_computed_at_once() {
    let traffic = json!({ "rate": 20, "burst": 1, "clients": 1, "cost": 1 });
    let question = json!({ "policies": ["token_bucket 10/s"], "traffic": traffic, "seconds": 60 });
    let (status, answer) = post(&app(), "/api/what-if", question).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(
        (&answer["requests"], &answer["bin"]),
        (&json!(1_200), &json!(500))
    );
    let outcome = &answer["policies"][0];
    let bins = outcome["bins"].as_array().unwrap();
    assert_eq!(bins.len(), 120);
    assert_eq!(bins[0], json!({ "admitted": 10, "queued": 0, "denied": 0 }));
    assert_eq!(
        bins[119],
        json!({ "admitted": 5, "queued": 0, "denied": 5 })
    );
    for kind in ["admitted", "queued", "denied"] {
        let sum: u64 = bins.iter().map(|bin| bin[kind].as_u64().unwrap()).sum();
        assert_eq!(outcome["total"][kind], sum, "{kind}");
    }
}
