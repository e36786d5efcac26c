//! What the page calls to compare policies in virtual time.

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, rejection::JsonRejection},
    routing::post,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{
    log,
    outcome::{self, Outcome},
    requests::Requests,
};
use crate::{
    api::Refused,
    setting::{self, Fault, Traffic},
};

/// Bytes of a request, nearly all of which are the log: 16 MiB, and its escapes as JSON.
const MAX_BODY: usize = 20 * 1024 * 1024;

/// One computation at a time: each may need a processor for seconds, and the memory of a log.
static ONE: Semaphore = Semaphore::const_new(1);

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/api/what-if", post(compute))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Policies, and the requests: a log, or traffic for some seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    policies: Vec<String>,
    log: Option<String>,
    traffic: Option<Traffic>,
    seconds: Option<u64>,
}

#[derive(Serialize)]
struct Answer {
    requests: u64,
    /// Milliseconds.
    length: u64,
    /// The length of a bar of the chart, in milliseconds.
    bin: u64,
    policies: Vec<Outcome>,
}

async fn compute(body: Result<Json<Question>, JsonRejection>) -> Result<Json<Answer>, Refused> {
    let Json(question) = body?;
    // Never closed.
    let _turn = ONE.acquire().await;
    // Not on a thread that serves requests: this takes seconds.
    let answer = tokio::task::spawn_blocking(|| answer(question)).await;
    let answer = answer.map_err(|_| vec![Fault::new("server", "The computation failed.")])?;
    Ok(Json(answer?))
}

fn answer(question: Question) -> Result<Answer, Vec<Fault>> {
    let policies = setting::policies(&question.policies)?;
    let requests = match (question.log, question.traffic, question.seconds) {
        (Some(text), None, None) => {
            log::read(&text).map_err(|fault| vec![Fault::new("log", fault)])?
        }
        (None, Some(traffic), Some(seconds)) => Requests::made(traffic, seconds)?,
        _ => {
            let message = "expected either a log, or traffic and seconds";
            return Err(vec![Fault::new("request", message)]);
        }
    };
    let outcomes = policies.iter().map(|policy| Outcome::of(policy, &requests));
    Ok(Answer {
        requests: requests.count(),
        length: requests.length().div_ceil(1_000_000),
        bin: outcome::bin(&requests),
        policies: outcomes.collect(),
    })
}
