use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{get, post};
use crate::app;

/// The samples of run 1.
pub(super) struct Samples(axum::body::BodyDataStream);

impl Samples {
    async fn of(app: &Router) -> Self {
        Self(
            get(app, "/api/runs/1/events")
                .await
                .into_body()
                .into_data_stream(),
        )
    }

    pub(super) async fn next(&mut self) -> Value {
        loop {
            let event = self.0.next().await.expect("the run goes on").unwrap();
            let text = std::str::from_utf8(&event).unwrap();
            // Others keep the connection open.
            if let Some(data) = text.strip_prefix("data: ") {
                return serde_json::from_str(data.trim_end()).unwrap();
            }
        }
    }

    /// Adds up the counts of a policy, over this many samples.
    async fn count(&mut self, samples: usize, policy: usize) -> [u64; 3] {
        let mut sum = [0; 3];
        for _ in 0..samples {
            let sample = self.next().await;
            for (count, kind) in sum.iter_mut().zip(["admitted", "queued", "denied"]) {
                *count += sample["lanes"][policy][kind].as_u64().unwrap();
            }
        }
        sum
    }
}

pub(super) async fn start_scene(app: &Router, policies: Value, scene: &str) -> Samples {
    let body = json!({ "policies": policies, "scene": scene });
    let (status, answer) = post(app, "/api/runs", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    Samples::of(app).await
}

async fn start(app: &Router, policies: Value) -> Samples {
    start_scene(app, policies, "policies").await
}

pub(super) async fn set_traffic(app: &Router, traffic: Value) {
    let (status, answer) = post(app, "/api/runs/1/traffic", json!({ "traffic": traffic })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// Ten seconds of 40 requests per second: 20 at once, then 10 per second.
#[tokio::test(start_paused = true)]
async fn the_layer_denies_what_is_above_the_limit() {
    let app = app();
    let mut samples = start(&app, json!(["token_bucket 10/s; burst=20"])).await;
    set_traffic(
        &app,
        json!({ "rate": 40, "burst": 4, "clients": 1, "cost": 1 }),
    )
    .await;
    let [admitted, queued, denied] = samples.count(40, 0).await;
    assert!((110..=121).contains(&admitted), "{admitted}");
    assert_eq!(queued, 0);
    assert!((380..=404).contains(&(admitted + denied)), "{denied}");
}

#[tokio::test(start_paused = true)]
async fn each_policy_gets_the_same_requests_and_each_client_its_own_limit() {
    let app = app();
    let mut samples = start(&app, json!(["fixed_window 5/h", "fixed_window 3/h"])).await;
    set_traffic(
        &app,
        json!({ "rate": 100, "burst": 1, "clients": 4, "cost": 1 }),
    )
    .await;
    let last = loop {
        let sample = samples.next().await;
        if sample["at"].as_u64() > Some(2_000) {
            break sample;
        }
    };
    for (lane, capacity) in [(0, 5), (1, 3)] {
        let levels = last["lanes"][lane]["levels"].as_array().unwrap();
        assert_eq!(levels.len(), 4);
        for level in levels {
            assert_eq!(
                (&level["remaining"], &level["limit"]),
                (&json!(0), &json!(capacity))
            );
        }
        let denied = last["lanes"][lane]["denied"].as_u64().unwrap();
        assert!((24..=26).contains(&denied), "{denied}");
    }
}

/// A bucket, and a window that soon has less left than the bucket.
#[tokio::test(start_paused = true)]
async fn each_sample_has_the_level_of_the_limit_with_the_least_left_and_the_end_of_its_window() {
    let app = app();
    let policy = "token_bucket 1/s; burst=11 + fixed_window 12/h; anchored=true";
    let mut samples = start(&app, json!([policy])).await;
    let first = samples.next().await;
    assert_eq!(
        first["lanes"][0]["levels"],
        json!([{ "remaining": 11, "limit": 11, "part": 0, "full_after": 0 }])
    );
    for (cost, wanted) in [
        // The bucket has 1 left, the window 2.
        (10, json!([1, 11, 0])),
        // 3 s later the bucket has 4, of which one is taken; the window has 1.
        (1, json!([1, 12, 1])),
    ] {
        post(&app, "/api/runs/1/requests", json!({ "cost": cost })).await;
        let sample = samples.next().await;
        let level = &sample["lanes"][0]["levels"][0];
        let figures = json!([level["remaining"], level["limit"], level["part"]]);
        assert_eq!(figures, wanted, "{sample}");
        let full_after = level["full_after"].as_u64().unwrap();
        let expected = if cost == 10 {
            9_000..=10_000
        } else {
            3_590_000..=3_600_000
        };
        assert!(expected.contains(&full_after), "{level}");
        samples.count(12, 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_shows_what_waits_and_how_long() {
    let app = app();
    let mut samples = start(&app, json!(["leaky_bucket 2/s; burst=1; queue=3"])).await;
    set_traffic(
        &app,
        json!({ "rate": 1, "burst": 5, "clients": 1, "cost": 1 }),
    )
    .await;
    let mut first = samples.next().await;
    while first["lanes"][0]["denied"] == 0 {
        first = samples.next().await;
    }
    let lane = &first["lanes"][0];
    assert_eq!((&lane["admitted"], &lane["denied"]), (&json!(1), &json!(1)));
    assert_eq!(lane["waiting"], 3);
    let mut longest = 0;
    for _ in 0..8 {
        let sample = samples.next().await;
        longest = longest.max(sample["lanes"][0]["longest_wait"].as_u64().unwrap());
    }
    assert!((1_490..=1_510).contains(&longest), "{longest}");
}

#[tokio::test(start_paused = true)]
async fn traffic_stops_on_request_and_without_a_page() {
    let app = app();
    let mut samples = start(&app, json!(["fixed_window 1/h"])).await;
    let traffic = json!({ "rate": 100, "burst": 1, "clients": 1, "cost": 1 });
    set_traffic(&app, traffic.clone()).await;
    samples.count(4, 0).await;
    set_traffic(&app, Value::Null).await;
    samples.count(1, 0).await;
    assert_eq!(samples.count(4, 0).await, [0; 3]);

    set_traffic(&app, traffic).await;
    samples.count(4, 0).await;
    drop(samples);
    let mut samples = Samples::of(&app).await;
    samples.count(1, 0).await;
    assert_eq!(samples.count(4, 0).await, [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn requests_of_other_programs_go_through_the_same_limit() {
    let app = app();
    let mut samples = start(&app, json!(["token_bucket 1/h; burst=5"])).await;
    let request = Request::post("/api/runs/1/lanes/0").header("cost", "4");
    let request = request.body(Body::empty()).unwrap();
    // The route has no POST: the limit is around it, so the request counts.
    assert_eq!(
        app.clone().oneshot(request).await.unwrap().status(),
        StatusCode::OK
    );
    assert_eq!(
        get(&app, "/api/runs/1/lanes/0").await.status(),
        StatusCode::OK
    );
    let denied = get(&app, "/api/runs/1/lanes/0").await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["retry-after"], "3600");
    let sample = samples.next().await;
    assert_eq!(sample["lanes"][0]["levels"][0]["remaining"], 0);
    let body = get(&app, "/api/runs/1/lanes/1").await;
    assert_eq!(body.status(), StatusCode::NOT_FOUND);
    to_bytes(body.into_body(), 1_000).await.unwrap();
}

/// The last denied answer under a policy of one request: HTTP, and gRPC.
async fn denied_answer(policy: &str) -> (String, String) {
    let app = app();
    let mut samples = start(&app, json!([policy])).await;
    for _ in 0..2 {
        post(&app, "/api/runs/1/requests", json!({ "cost": 1 })).await;
    }
    let mut sample = samples.next().await;
    while sample["lanes"][0]["last_denied"].is_null() {
        sample = samples.next().await;
    }
    let text = |form: &str| {
        let text = sample["lanes"][0]["last_denied"][form].as_str();
        text.unwrap().to_owned()
    };
    (text("http"), text("grpc"))
}

#[tokio::test(start_paused = true)]
async fn the_answer_in_grpc_says_the_same_as_the_one_in_http() {
    for (policy, seconds, pushback, delay) in [
        ("token_bucket 1/min", 60, 60_000, "60.000000000"),
        ("token_bucket 8/s; burst=1", 1, 125, "0.125000000"),
        ("sliding_log 1/300s", 300, 300_000, "300.000000000"),
    ] {
        let (http, grpc) = denied_answer(policy).await;
        let start = format!("HTTP/1.1 429 Too Many Requests\nretry-after: {seconds}\n");
        assert!(http.starts_with(&start), "{http}");
        for line in [
            "HTTP/2 200 OK\n".to_owned(),
            "\ncontent-type: application/grpc\n".to_owned(),
            "\ngrpc-status: 8\n".to_owned(),
            format!("\ngrpc-retry-pushback-ms: {pushback}\n"),
            format!("\nretry_delay: {delay} s\n"),
        ] {
            assert!(grpc.contains(&line), "{line} is missing: {grpc}");
        }
        let limits = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with("ratelimit"));
            let mut lines: Vec<_> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(limits(&http), limits(&grpc));
        assert_eq!(limits(&http).len(), 2);
    }
}
