//! What the page calls.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State, rejection::JsonRejection},
    http::StatusCode,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
    routing::{any, get, post},
};
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    run::Run,
    runs::Runs,
    scene::{Event as Happening, Lanes, Scene},
    setting::{self, Fault, One, Traffic},
    snippet,
};

/// Bytes of a request of the page, except for an uploaded log.
const MAX_BODY: usize = 16 * 1024;

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/api/policies", post(check))
        .route("/api/runs", post(start))
        .route("/api/runs/{run}/traffic", post(change))
        .route("/api/runs/{run}/requests", post(send_one))
        .route("/api/runs/{run}/happens", post(happens))
        .route("/api/runs/{run}/events", get(events))
        .route("/api/runs/{run}/lanes/{number}", any(forward))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::default())
}

/// Why a request of the page is refused: one sentence per field.
pub(crate) struct Refused(StatusCode, Vec<Fault>);

impl Refused {
    const fn no_run() -> Self {
        Self(StatusCode::NOT_FOUND, Vec::new())
    }
}

impl From<Vec<Fault>> for Refused {
    fn from(faults: Vec<Fault>) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, faults)
    }
}

impl From<JsonRejection> for Refused {
    fn from(rejection: JsonRejection) -> Self {
        let message = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => "The request is too large.".to_owned(),
            _ => rejection.body_text(),
        };
        Self(rejection.status(), vec![Fault::new("request", message)])
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(status, mut faults) = self;
        if status == StatusCode::NOT_FOUND {
            faults.push(Fault::new("run", "This run has ended: start it again."));
        }
        (status, Json(json!({ "faults": faults }))).into_response()
    }
}

type Body<T> = Result<Json<T>, JsonRejection>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policies {
    policies: Vec<String>,
}

/// A policy as text, and how to write it elsewhere; or what is wrong with it.
#[derive(Serialize)]
#[serde(untagged)]
enum Checked {
    Valid {
        line: String,
        rust: String,
        toml: String,
    },
    Invalid {
        error: String,
    },
}

/// Checks each policy.
async fn check(body: Body<Policies>) -> Result<Json<Vec<Checked>>, Refused> {
    let Json(Policies { policies }) = body?;
    let checked = policies
        .iter()
        .take(*setting::POLICIES.end())
        .map(|text| match setting::policy(text) {
            Ok(policy) => Checked::Valid {
                line: policy.line().to_owned(),
                rust: snippet::rust(policy.line()),
                toml: snippet::toml(policy.line()),
            },
            Err(error) => Checked::Invalid { error },
        });
    Ok(Json(checked.collect()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    policies: Vec<String>,
    #[serde(default)]
    scene: Scene,
}

/// Starts a run without traffic; returns its number and the names of its routes.
async fn start(
    State(runs): State<Arc<Runs>>,
    body: Body<Start>,
) -> Result<Json<serde_json::Value>, Refused> {
    let Json(Start { policies, scene }) = body?;
    let run = Run::start(Lanes::new(scene, &setting::policies(&policies)?)?);
    let names: Vec<_> = run.lanes().names().map(str::to_owned).collect();
    Ok(Json(json!({ "run": runs.add(run), "lanes": names })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// `None` stops the traffic.
    traffic: Option<Traffic>,
}

async fn change(
    State(runs): State<Arc<Runs>>,
    Path(run): Path<u64>,
    body: Body<Change>,
) -> Result<(), Refused> {
    let Json(Change { traffic }) = body?;
    if let Some(traffic) = &traffic {
        traffic.check()?;
    }
    let run = runs.get(run).ok_or_else(Refused::no_run)?;
    run.set_traffic(traffic);
    Ok(())
}

/// Sends one request of client 1.
async fn send_one(
    State(runs): State<Arc<Runs>>,
    Path(run): Path<u64>,
    body: Body<One>,
) -> Result<(), Refused> {
    let Json(one) = body?;
    one.check()?;
    let run = runs.get(run).ok_or_else(Refused::no_run)?;
    run.send_one(1, one);
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Happens {
    event: Happening,
}

/// Stops or starts the store of a fleet, or restarts the servers.
async fn happens(
    State(runs): State<Arc<Runs>>,
    Path(run): Path<u64>,
    body: Body<Happens>,
) -> Result<(), Refused> {
    let Json(Happens { event }) = body?;
    let run = runs.get(run).ok_or_else(Refused::no_run)?;
    let happened = run.lanes().happens(event);
    Ok(happened.map_err(|error| vec![Fault::new("event", error.to_string())])?)
}

/// The samples of a run, as server-sent events.
async fn events(
    State(runs): State<Arc<Runs>>,
    Path(run): Path<u64>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    let viewer = runs.get(run).ok_or_else(Refused::no_run)?.view();
    let samples = stream::unfold(viewer, |mut viewer| async {
        let sample = viewer.next().await?;
        Some((Ok(Event::default().data(sample)), viewer))
    });
    Ok(Sse::new(samples).keep_alive(KeepAlive::default()))
}

/// A request over HTTP to one of the routes, for other clients than the page.
async fn forward(
    State(runs): State<Arc<Runs>>,
    Path((run, number)): Path<(u64, usize)>,
    request: Request,
) -> Result<Response, Refused> {
    let run = runs.get(run).ok_or_else(Refused::no_run)?;
    let lane = run.lane(number).ok_or_else(Refused::no_run)?;
    drop(run);
    Ok(lane.forward(request).await)
}
