//! An answer as text, in the form of HTTP and in that of gRPC.

use std::{convert::Infallible, fmt::Write};

use axum::{
    body::Body,
    http::{HeaderMap, Request, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use serde::Serialize;
use tower_throttle::{
    RateLimited,
    respond::{Grpc, Respond},
};

use crate::grpc_status;

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    denied: Option<RateLimited>,
}

/// An [`Answer`] as text.
#[derive(Debug, Serialize)]
pub(crate) struct AnswerText {
    http: String,
    grpc: String,
}

impl Answer {
    pub(crate) fn of(response: &Response) -> Self {
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            denied: response.extensions().get().cloned(),
        }
    }

    pub(crate) fn text(&self) -> AnswerText {
        AnswerText {
            http: format!("HTTP/1.1 {}\n{}", self.status, lines(&self.headers)),
            grpc: self.grpc(),
        }
    }

    /// What a gRPC client gets by the same decision.
    fn grpc(&self) -> String {
        let mut headers: HeaderMap = self.headers.clone();
        headers.retain_only("ratelimit");
        let Some(denied) = self.denied.clone() else {
            let limits = lines(&headers);
            return format!(
                "HTTP/2 200 OK\ncontent-type: application/grpc\n{limits}\n\
                 the message, then the service's trailers:\ngrpc-status: 0\n"
            );
        };
        let mut request = Request::new(());
        request.headers_mut().insert(
            CONTENT_TYPE,
            axum::http::HeaderValue::from_static("application/grpc"),
        );
        let Ok(response): Result<Response<Body>, Infallible> = Grpc.deny(request, denied);
        let mut status = response.headers().clone();
        status.extend(headers);
        let mut text = format!("HTTP/2 {}\n{}", response.status(), lines(&status));
        let details = status.get("grpc-status-details-bin");
        let delay = details.and_then(|value| grpc_status::retry_delay(value.to_str().ok()?));
        if let Some(delay) = delay {
            let (seconds, nanos) = (delay.as_secs(), delay.subsec_nanos());
            let _ = write!(
                text,
                "\ngrpc-status-details-bin holds a google.rpc.RetryInfo:\nretry_delay: {seconds}.{nanos:09} s\n"
            );
        }
        text
    }
}

trait RetainOnly {
    fn retain_only(&mut self, prefix: &str);
}

impl RetainOnly for HeaderMap {
    fn retain_only(&mut self, prefix: &str) {
        let others: Vec<_> = self
            .keys()
            .filter(|name| !name.as_str().starts_with(prefix))
            .cloned()
            .collect();
        for name in others {
            self.remove(name);
        }
    }
}

/// One header per line.
fn lines(headers: &HeaderMap) -> String {
    headers
        .iter()
        .fold(String::new(), |mut text, (name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            let _ = writeln!(text, "{name}: {value}");
            text
        })
}
