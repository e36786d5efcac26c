//! Ways around a limit that a file must not have.

use http::Method;
use tower_throttle::policy::PolicyFile;

use crate::support::{App, at, file, from, limit, with, without_address};

const LOCKOUT: &str = "lockout 2/h; on_success=clear";
const GET: &str = "match = { methods = \"GET\" }";

/// The response of a gRPC service, with its status in the headers or in trailers.
fn grpc(code: Option<&str>) -> axum::extract::Request {
    let request = with(from("192.0.2.1"), "answer-content-type", "application/grpc");
    match code {
        Some(code) => with(request, "answer-grpc-status", code),
        None => request,
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_counts_by_its_status_and_not_by_that_of_http() {
    for (code, expected) in [
        ("16", 429),
        ("7", 429),
        ("8", 200),
        ("13", 200),
        ("x", 200),
        ("0", 200),
    ] {
        let app = App::new(&limit("login", LOCKOUT, "\"client_ip\"", GET));
        for _ in 0..2 {
            assert_eq!(app.status(grpc(Some(code))).await, 200);
        }
        assert_eq!(app.status(grpc(Some("0"))).await, expected, "code {code}");
    }
    // The codes as HTTP statuses.
    for (code, status) in [
        ("1", 499),
        ("2", 500),
        ("3", 400),
        ("4", 504),
        ("5", 404),
        ("6", 409),
        ("8", 429),
        ("9", 400),
        ("10", 409),
        ("11", 400),
        ("12", 501),
        ("13", 500),
        ("14", 503),
        ("15", 500),
        ("x", 500),
    ] {
        let failure = format!("failure = {status}");
        let app = App::new(&limit(
            "calls",
            "fixed_window 1/h",
            "\"client_ip\"",
            &failure,
        ));
        assert_eq!(app.status(grpc(Some("0"))).await, 200);
        assert_eq!(app.status(grpc(Some(code))).await, 200);
        assert_eq!(app.status(grpc(Some(code))).await, 429, "code {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_success_that_is_known_clears_failures() {
    for (between, expected) in [(Some("0"), 200), (Some("13"), 429), (None, 429)] {
        let app = App::new(&limit("login", LOCKOUT, "\"client_ip\"", GET));
        for code in [Some("16"), between, Some("16")] {
            assert_eq!(app.status(grpc(code)).await, 200);
        }
        assert_eq!(app.status(grpc(Some("0"))).await, expected, "{between:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deny_refuses_requests_whose_client_is_not_known() {
    let app = App::new(
        &("[lists]\nbad = { cidrs = [\"203.0.113.0/24\"] }\n\
           [[deny]]\nlist = \"bad\"\nmatch = { path = \"/login\" }\n"
            .to_owned()
            + &limit("all", "fixed_window 9/h", "\"global\"", "")),
    );
    let refused = app.send(without_address("/login")).await;
    assert_eq!(refused.status(), 500);
    let error = refused.headers()["x-ratelimit-error"].to_str().unwrap();
    assert!(error.contains("address"), "{error}");
    assert_eq!(app.status(without_address("/")).await, 200);
    assert_eq!(app.status(at("192.0.2.1", "/login")).await, 200);
    assert_eq!(app.status(at("203.0.113.9", "/login")).await, 403);
    // A client that is found by its connection has not sent this header: a proxy has.
    let forwarded = with(from("192.0.2.1"), "x-forwarded-for", "203.0.113.9");
    let app = App::new(
        &("[lists]\nbad = { cidrs = [\"203.0.113.0/24\"] }\n[[deny]]\nlist = \"bad\"\n".to_owned()
            + &limit("all", "fixed_window 9/h", "\"global\"", "")),
    );
    assert_eq!(app.status(forwarded).await, 200);
    assert_eq!(app.status(from("192.0.2.1")).await, 200);
    assert_eq!(app.handle.counts().unread_proxy_headers, 1);
    for (key, unread) in [("\"client_ip\"", 1), ("\"global\"", 0)] {
        let app = App::new(&limit("all", "fixed_window 9/h", key, ""));
        let forwarded = with(from("192.0.2.1"), "x-forwarded-for", "203.0.113.9");
        assert_eq!(app.status(forwarded).await, 200);
        assert_eq!(app.handle.counts().unread_proxy_headers, unread, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_get_counts_head_too() {
    let sent = async |app: &App, method| {
        let mut request = from("192.0.2.1");
        *request.method_mut() = method;
        app.status(request).await
    };
    let more = "match = { methods = \"GET\" }";
    let app = App::new(&limit("reads", "fixed_window 1/h", "\"global\"", more));
    assert_eq!(sent(&app, Method::HEAD).await, 200);
    assert_eq!(sent(&app, Method::GET).await, 429);
    assert_eq!(sent(&app, Method::HEAD).await, 429);
    assert_eq!(sent(&app, Method::POST).await, 200);
    let more = "match = { methods = \"HEAD\" }";
    let app = App::new(&limit("heads", "fixed_window 1/h", "\"global\"", more));
    assert_eq!(sent(&app, Method::HEAD).await, 200);
    assert_eq!(sent(&app, Method::GET).await, 200);
    assert_eq!(sent(&app, Method::HEAD).await, 429);
}

#[test]
fn no_password_is_printed() {
    let url = "redis://user:secret@cache:6379";
    let in_store = limit(
        "a",
        "fixed_window 1/h",
        "\"client_ip\"",
        "store = \"shared\"",
    );
    let stores = |value: &str| format!("{in_store}[stores]\nshared = {value}\n");
    let read = file(&stores(&format!("{{ redis = \"{url}\" }}")));
    assert!(!format!("{read:?}").contains("secret"), "{read:?}");
    for text in [
        stores(&format!("\"{url}\"")),
        stores("\"host=db password=secret\""),
        stores(&format!("{{ rediss = \"{url}\" }}")),
        format!("{in_store}stores = \"{url}\"\n"),
        format!("[stores]\n\"{url}\" = {{ redis = \"redis://cache\" }}\n"),
        in_store.replace("\"shared\"", &format!("\"{url}\"")),
        in_store.replace("store = \"shared\"", &format!("on_store_error = \"{url}\"")),
        in_store.replace("store = \"shared\"", &format!("shadow = \"{url}\"")),
    ] {
        let problems = PolicyFile::from_toml(&format!("version = 1\n{text}"));
        let problems = problems.map(drop).unwrap_err().to_string();
        assert!(!problems.contains("secret"), "{problems}");
    }
}
