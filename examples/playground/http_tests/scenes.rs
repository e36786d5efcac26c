//! The line, a fleet with an outage, and restarts.

use axum::{Router, http::StatusCode};
use serde_json::{Value, json};

use super::{
    live::{Samples, set_traffic, start_scene},
    post,
};
use crate::app;

async fn send_one(app: &Router, important: bool) {
    let one = json!({ "cost": 1, "important": important });
    post(app, "/api/runs/1/requests", one).await;
}

async fn happens(app: &Router, event: &str) {
    let (status, answer) = post(app, "/api/runs/1/happens", json!({ "event": event })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// The numbers of those that wait, the next one first.
fn line(sample: &Value) -> Vec<u64> {
    let line = sample["lanes"][0]["line"].as_array().unwrap();
    line.iter()
        .map(|waiter| waiter["number"].as_u64().unwrap())
        .collect()
}

/// Any limit has a line, and the request that is shown as the next one is served next.
#[tokio::test(start_paused = true)]
async fn important_requests_are_served_first_as_the_line_shows() {
    let app = app();
    let policy = json!(["token_bucket 1/s; burst=1; queue=5"]);
    let mut samples = start_scene(&app, policy, "policies").await;
    for important in [false, false, false, true, false, true] {
        send_one(&app, important).await;
        // A task of its own sends each: one after the other.
        tokio::task::yield_now().await;
    }
    let mut lines = vec![line(&samples.next().await)];
    while lines.len() < 3 || !lines[lines.len() - 1].is_empty() {
        let next = line(&samples.next().await);
        if lines[lines.len() - 1] != next {
            lines.push(next);
        }
    }
    lines.retain(|line| !line.is_empty());
    assert_eq!(lines[0], [4, 6, 2, 3, 5]);
    for pair in lines.windows(2) {
        assert_eq!(pair[0][1..], pair[1]);
    }
}

/// What one process, and three machines together, admit in so many samples.
async fn admitted(samples: &mut Samples, count: usize) -> [u64; 2] {
    let mut sums = [0; 2];
    for _ in 0..count {
        let sample = samples.next().await;
        for (at, lane) in sample["lanes"].as_array().unwrap().iter().enumerate() {
            sums[at.min(1)] += lane["admitted"].as_u64().unwrap();
        }
    }
    sums
}

#[tokio::test(start_paused = true)]
async fn three_machines_admit_what_one_process_does_and_their_shares_in_an_outage() {
    for scene in ["leased", "synced"] {
        let app = app();
        let policy = json!(["token_bucket 30/s; burst=60"]);
        let mut samples = start_scene(&app, policy, scene).await;
        let traffic = json!({ "rate": 200, "burst": 1, "clients": 1, "cost": 1 });
        set_traffic(&app, traffic).await;
        let [one, three] = admitted(&mut samples, 40).await;
        assert!((350..=365).contains(&one), "{one}");
        // `synced` may admit what refills in an interval more, and rounds by a unit per machine.
        assert!((330..=370).contains(&three), "{scene}: {three}");

        happens(&app, "outage").await;
        admitted(&mut samples, 12).await;
        let [one, three] = admitted(&mut samples, 40).await;
        assert!((295..=305).contains(&one), "{one}");
        // Three shares of 10 per second.
        assert!((295..=305).contains(&three), "{scene}: {three}");

        happens(&app, "recovery").await;
        admitted(&mut samples, 12).await;
        let [_, three] = admitted(&mut samples, 40).await;
        assert!((280..=305).contains(&three), "{scene}: {three}");
    }
}

#[tokio::test]
async fn a_fleet_refuses_what_it_cannot_promise() {
    for (policy, reason) in [
        ("lockout 5/min", "Policy 1 in a fleet: "),
        ("token_bucket 1/s; queue=3", "only a limit in this process"),
    ] {
        let body = json!({ "policies": [policy], "scene": "leased" });
        let (status, answer) = post(&app(), "/api/runs", body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        let message = answer["faults"][0]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
    }
}

/// What client 1 may use of each server.
fn remaining(sample: &Value) -> Vec<u64> {
    let lanes = sample["lanes"].as_array().unwrap().iter();
    let left = lanes.map(|lane| lane["levels"][0]["remaining"].as_u64().unwrap());
    left.collect()
}

/// The server that is not saved shows what is wrong without: it admits everything once more.
#[tokio::test(start_paused = true)]
async fn a_saved_state_is_not_forgotten_by_a_restart() {
    let app = app();
    let mut samples = start_scene(&app, json!(["fixed_window 5/d"]), "restart").await;
    for _ in 0..3 {
        send_one(&app, false).await;
    }
    samples.next().await;
    assert_eq!(remaining(&samples.next().await), [2, 2, 2]);
    happens(&app, "restart").await;
    samples.next().await;
    assert_eq!(remaining(&samples.next().await), [2, 2, 5]);
    send_one(&app, false).await;
    samples.next().await;
    assert_eq!(remaining(&samples.next().await), [1, 1, 4]);
}

/// A request that waits in a server that is restarted loses its connection, and takes nothing.
#[tokio::test(start_paused = true)]
async fn no_request_waits_over_a_restart() {
    let app = app();
    let policy = json!(["token_bucket 1/h; burst=1; queue=5"]);
    let mut samples = start_scene(&app, policy, "restart").await;
    for _ in 0..3 {
        send_one(&app, false).await;
    }
    samples.next().await;
    assert_eq!(samples.next().await["lanes"][1]["waiting"], 2);
    happens(&app, "restart").await;
    samples.next().await;
    let after = samples.next().await;
    assert_eq!(after["lanes"][0]["waiting"], 2);
    for lane in [1, 2] {
        assert_eq!(after["lanes"][lane]["waiting"], 0);
        assert_eq!(after["lanes"][lane]["line"], json!([]));
    }
}
