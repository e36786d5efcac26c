//! What holds for every responder of HTTP and gRPC.

use std::time::Duration;

use ::http::{Extensions, HeaderMap, Request, Response, StatusCode};

use super::{Grpc, Http, ProblemJson, Protocol, Respond, Standard};
use crate::decision::{Decision, Verdict};
use crate::error::{RateLimited, Rejection};

type Responder = dyn Respond<Request<()>, Response<String>, (), Protocol = Http>;

fn responders() -> Vec<(&'static str, Box<Responder>)> {
    let own = |_: &Request<()>, denied: &RateLimited| {
        let mut response = Response::new("own".to_owned());
        *response.status_mut() = denied.status();
        response
    };
    vec![
        ("closure", Box::new(own)),
        ("Standard", Box::new(Standard)),
        ("ProblemJson", Box::new(ProblemJson)),
        ("Grpc", Box::new(Grpc)),
    ]
}

fn decision() -> Decision {
    Decision::new(Verdict::Deny, 10, 0, Some(2_500_000_000), 1)
}

fn request(content_type: &str) -> Request<()> {
    let request = Request::post("/").header("content-type", content_type);
    let request = request.header("te", "trailers");
    let request = request.header("grpc-timeout", "5S").extension(7_u8);
    request.body(()).unwrap()
}

type Answer = (StatusCode, HeaderMap, bool);

fn answer(response: Result<Response<String>, ()>) -> Answer {
    let (parts, _) = response.unwrap().into_parts();
    let has_reason = |extensions: &Extensions| {
        // Nothing of the request is left.
        extensions.get::<RateLimited>().is_some() && extensions.len() == 1
    };
    let has_reason = has_reason(&parts.extensions);
    (parts.status, parts.headers, has_reason)
}

/// Shows promise 73.
#[test]
fn every_responder_states_the_reason_and_keeps_nothing_of_the_request() {
    let limited = || RateLimited::new(decision());
    let rejected = || RateLimited::from(Rejection::new(StatusCode::FORBIDDEN, "no key"));
    for (name, responder) in responders() {
        for content_type in ["text/plain", "application/grpc"] {
            for denied in [&limited as &dyn Fn() -> RateLimited, &rejected] {
                let answer = answer(responder.deny(request(content_type), denied()));
                let (status, headers, has_reason) = answer;
                assert!(has_reason, "{name}");
                if let Some(code) = headers.get("grpc-status") {
                    let expected = denied().rejection().map_or("8", |_| "7");
                    assert_eq!((status, code.to_str().unwrap()), (StatusCode::OK, expected));
                } else {
                    assert_eq!(status, denied().status(), "{name}");
                }
                let is_grpc = content_type == "application/grpc" && name != "closure";
                let found = headers.contains_key("grpc-status");
                assert_eq!(found, is_grpc || name == "Grpc");
                assert!(!headers.contains_key("te"), "{name}");
                assert_eq!(headers["cache-control"], "no-store", "{name}");
                if denied().decision().is_some() {
                    assert_eq!(headers["retry-after"], "3", "{name}");
                }
            }
        }
    }
}

#[test]
fn http_shares_the_decision_reads_the_clients_timeout_and_knows_a_denial() {
    type Known = dyn Fn(&mut Request<()>) -> Option<Duration>;
    let known: &Known = &|request| {
        <Http as Protocol<_, Response<()>>>::share(request, &decision());
        <Http as Protocol<_, Response<()>>>::timeout(request)
    };
    let mut request = request("text/plain");
    assert_eq!(known(&mut request), Some(Duration::from_secs(5)));
    assert_eq!(request.extensions().get(), Some(&decision()));
    let is_denial = |response| <Http as Protocol<Request<()>, _>>::is_denial(&response);
    assert!(!is_denial(Response::new(())));
    let denied = RateLimited::new(decision());
    assert!(is_denial(
        Standard
            .deny(Request::new(()), denied)
            .unwrap_or_else(|()| unreachable!())
    ));
}
