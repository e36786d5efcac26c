use axum::http::StatusCode;
use serde_json::{Value, json};

use super::post;
use crate::{app, runs::MAX_RUNS};

/// The sentences with which a request is refused.
fn sentences(answer: &Value) -> Vec<&str> {
    let faults = answer["faults"].as_array().unwrap();
    faults
        .iter()
        .map(|fault| fault["message"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn traffic_out_of_bounds_is_refused_with_a_sentence_per_field() {
    let app = app();
    post(
        &app,
        "/api/runs",
        json!({ "policies": ["fixed_window 1/s"] }),
    )
    .await;
    let traffic = json!({ "traffic": { "rate": 501, "burst": 0, "clients": 21, "cost": 1 } });
    let (status, answer) = post(&app, "/api/runs/1/traffic", traffic).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        sentences(&answer),
        [
            "rate: expected 1 to 500 requests per second, found 501",
            "burst: expected 1 to 500 requests, found 0",
            "clients: expected 1 to 20 clients, found 21",
        ]
    );
    let (_, answer) = post(&app, "/api/runs/1/requests", json!({ "cost": 101 })).await;
    assert_eq!(
        sentences(&answer),
        ["cost: expected 1 to 100 units, found 101"]
    );
}

#[tokio::test]
async fn the_number_and_the_length_of_policies_is_bounded() {
    let app = app();
    let many = json!({ "policies": vec!["fixed_window 1/s"; 5] });
    let (status, answer) = post(&app, "/api/runs", many).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(sentences(&answer), ["policies: expected 1 to 4, found 5"]);

    let long = json!({ "policies": [" ".repeat(401)] });
    let (_, answer) = post(&app, "/api/runs", long).await;
    assert_eq!(answer["faults"][0]["field"], "policies[0]");
    assert_eq!(
        sentences(&answer),
        ["expected at most 400 bytes, found 401"]
    );

    let huge = json!({ "policies": ["x".repeat(20_000)] });
    let (status, answer) = post(&app, "/api/policies", huge).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(sentences(&answer), ["The request is too large."]);
}

#[tokio::test]
async fn a_new_run_ends_the_oldest_one() {
    let app = app();
    for _ in 0..=MAX_RUNS {
        post(
            &app,
            "/api/runs",
            json!({ "policies": ["fixed_window 1/s"] }),
        )
        .await;
    }
    let (status, answer) = post(&app, "/api/runs/1/requests", json!({ "cost": 1 })).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(sentences(&answer), ["This run has ended: start it again."]);
    let (status, _) = post(&app, "/api/runs/2/requests", json!({ "cost": 1 })).await;
    assert_eq!(status, StatusCode::OK);
}
