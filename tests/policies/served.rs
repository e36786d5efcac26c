//! Requests through the limits of a file.

use std::{future::Ready, time::Duration};

use http::HeaderValue;
use tokio::time::{Instant, advance};
use tower_throttle::{
    ClientIp, Decision, Local, Quota, StoreError,
    algorithm::AnyAlgorithm,
    policy::PolicyKey,
    store::{Backend, IntoBackend, Op},
};

use crate::support::{Account, App, environment, from, limit, with, without_address};

const ONE: &str = "fixed_window 1/h";
const V6: [&str; 3] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];

#[tokio::test(start_paused = true)]
async fn every_key_counts_what_it_names() {
    let app = App::new(&limit("all", ONE, "\"global\"", ""));
    assert_eq!(app.status(from("192.0.2.1")).await, 200);
    assert_eq!(app.status(from("192.0.2.2")).await, 429);

    let app = App::new(&limit("all", ONE, "\"client_ip\"", ""));
    for (address, expected) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.1", 429)] {
        assert_eq!(app.status(from(address)).await, expected, "{address}");
    }

    for (key, expected) in [
        ("\"client_ip\"", [200, 429, 200]),
        ("\"client_ip/128\"", [200, 200, 200]),
        ("\"client_ip/32\"", [200, 429, 429]),
    ] {
        let app = App::new(&limit("all", ONE, key, ""));
        for (address, expected) in V6.into_iter().zip(expected) {
            assert_eq!(app.status(from(address)).await, expected, "{key} {address}");
        }
    }

    let app = App::new(&limit("all", ONE, "\"header:x-key\"", ""));
    for (value, expected) in [("a", 200), ("b", 200), ("a", 429)] {
        let request = with(from("192.0.2.1"), "x-key", value);
        assert_eq!(app.status(request).await, expected, "{value}");
    }

    let app = App::new(&limit("all", ONE, "\"bearer\"", ""));
    for (value, expected) in [("Bearer a", 200), ("Bearer b", 200), ("Bearer a", 429)] {
        let request = with(from("192.0.2.1"), "authorization", value);
        assert_eq!(app.status(request).await, expected, "{value}");
    }

    let app = App::new(&limit(
        "all",
        ONE,
        "[\"extension:account\", \"client_ip\"]",
        "",
    ));
    for (account, address, expected) in [
        ("ann", "192.0.2.1", 200),
        ("ann", "192.0.2.2", 200),
        ("bob", "192.0.2.1", 200),
        ("ann", "192.0.2.1", 429),
    ] {
        let mut request = from(address);
        request.extensions_mut().insert(Account(account));
        assert_eq!(app.status(request).await, expected, "{account} {address}");
    }
}

/// Shows promise 52.
#[tokio::test(start_paused = true)]
async fn a_request_without_the_key_does_what_the_file_says() {
    for (key, expected) in [
        ("\"header:x-key\"", [200, 429]),
        ("\"bearer\"", [200, 429]),
        ("\"extension:account\"", [500, 500]),
        ("\"client_ip\"", [500, 500]),
    ] {
        let app = App::new(&limit("all", ONE, key, ""));
        let nameless = || without_address("/");
        let statuses = [app.status(nameless()).await, app.status(nameless()).await];
        assert_eq!(statuses, expected, "{key}");
    }
    for (missing, expected) in [
        ("missing = \"shared\"", [200, 429]),
        ("missing = \"skip\"", [200, 200]),
        ("missing = 401", [401, 401]),
    ] {
        for key in ["\"header:x-key\"", "\"bearer\"", "\"extension:account\""] {
            let app = App::new(&limit("all", ONE, key, missing));
            let statuses = [app.get().await, app.get().await];
            assert_eq!(statuses, expected, "{key} {missing}");
        }
    }
}

/// A store that knows nothing without asking.
#[derive(Debug)]
struct Hidden(Local<AnyAlgorithm>);

impl Backend<PolicyKey> for Hidden {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, key: &PolicyKey, op: Op) -> Self::Future {
        self.0.apply(key, op)
    }

    fn quotas(&self) -> Vec<Quota> {
        Backend::<PolicyKey>::quotas(&self.0)
    }
}

impl IntoBackend for Hidden {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// Shows promise 53.
#[tokio::test(start_paused = true)]
async fn a_response_states_the_strictest_limit_that_has_headers() {
    let more = "store = \"hidden\"\nheaders = \"draft-11\"";
    let day = limit("day", "fixed_window 9/d", "\"client_ip\"", more);
    let hour = |number: u64| {
        let line = format!("fixed_window {number}/h");
        limit("hour", &line, "\"global\"", more)
    };
    let untold = limit("untold", "fixed_window 2/h", "\"global\"", "");
    let trial = limit(
        "trial",
        ONE,
        "\"global\"",
        "shadow = true\nheaders = \"draft-11\"",
    );
    let app_of = |policy: &str| {
        let environment =
            environment().store("hidden", |_, algorithm| Ok(Hidden(Local::new(algorithm))));
        App::within(policy, environment)
    };
    let named = |response: &http::Response<_>| {
        let values = response.headers().get_all("ratelimit").iter();
        let values = values.map(|value| value.to_str().unwrap().to_owned());
        values.collect::<Vec<_>>()
    };
    for (policy, figures) in [
        // The strictest one of all has no headers.
        (day.clone() + &hour(3) + &untold + &trial, &[2, 1][..]),
        (day.clone() + &hour(2) + &trial, &[1, 0, 0]),
    ] {
        let app = app_of(&policy);
        for left in figures {
            let told = named(&app.send(from("192.0.2.1")).await);
            assert_eq!(told.len(), 1, "{told:?}");
            let expected = format!("\"hour\";r={left}");
            assert!(told[0].starts_with(&expected), "{told:?}");
        }
    }
    // A denial by a limit without headers states none.
    let app = app_of(&(day + &limit("new", ONE, "\"global\"", "")));
    assert_eq!(named(&app.send(from("192.0.2.1")).await).len(), 1);
    let denied = app.send(from("192.0.2.1")).await;
    assert_eq!(
        (denied.status().as_u16(), named(&denied).len()),
        (429, 0),
        "{denied:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_failures_count_if_the_file_says_so() {
    let answer = |status: &str| with(from("192.0.2.1"), "answer", status);
    for (line, failure) in [
        ("lockout 2/h; block=1min", ""),
        ("lockout 2/h; block=1min", "failure = [401, 403]"),
        ("sliding_log 2/min", "failure = 401"),
        ("fixed_window 2/min; anchored=true", "failure = [401, 400]"),
    ] {
        let app = App::new(&limit("login", line, "\"client_ip\"", failure));
        for status in ["200", "302", "404", "500", "429", "401", "200", "401"] {
            let answered = app.status(answer(status)).await.to_string();
            assert_eq!(answered, status, "{line} {failure}");
        }
        assert_eq!(app.status(answer("200")).await, 429, "{line} {failure}");
        advance(Duration::from_secs(60)).await;
        assert_eq!(app.status(answer("200")).await, 200, "{line} {failure}");
    }
    // A success clears the failures of a pair of account and address.
    let line = "lockout 2/h; on_success=clear";
    let app = App::new(&limit(
        "login",
        line,
        "\"client_ip\"",
        "match = { methods = \"GET\" }",
    ));
    for status in ["401", "200", "401", "404"] {
        assert_eq!(app.status(answer(status)).await.to_string(), status);
    }
    assert_eq!(app.status(answer("401")).await, 401);
    assert_eq!(app.status(answer("401")).await, 429);
}

/// Shows promise 54.
#[tokio::test(start_paused = true)]
async fn a_shadow_decides_and_lets_every_request_pass() {
    let app = App::new(&limit("trial", ONE, "\"global\"", "shadow = true"));
    assert_eq!(app.admitted(5).await, 5);
    let counts = app.handle.counts_of("trial").unwrap();
    assert_eq!((counts.admitted, counts.denied), (1, 0));
    assert_eq!(counts.shadow_denied, 4);
    assert!(app.handle.counts_of("other").is_none());
    let busy = limit("trial", "concurrency 1", "\"global\"", "shadow = true");
    let app = App::new(&busy);
    let held = app.send(from("192.0.2.1")).await;
    assert_eq!(app.admitted(2).await, 2);
    drop(held);
    for (wait, waited) in [("", 1), ("; max_wait=2min", 120)] {
        let line = format!("concurrency 1; queue=1{wait}");
        let app = App::new(&limit("busy", &line, "\"global\"", ""));
        let (_held, start) = (app.send(from("192.0.2.1")).await, Instant::now());
        assert_eq!(app.get().await, 429, "{wait}");
        assert_eq!(start.elapsed().as_secs(), waited);
    }
    for line in [ONE, "concurrency 1"] {
        for (shadow, is_stated) in [("true", false), ("false", true)] {
            let others = format!("shadow = {shadow}\nheaders = \"draft-11\"");
            let app = App::new(&limit("trial", line, "\"global\"", &others));
            let response = app.send(from("192.0.2.1")).await;
            let stated = response.headers().get("ratelimit");
            let states = |stated: &HeaderValue| stated.as_bytes().starts_with(b"\"trial\"");
            assert_eq!(stated.map(states), is_stated.then_some(true), "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_environment_says_how_clients_are_found() {
    let proxy = ClientIp::x_forwarded_for().trusting(["192.0.2.0/24"]);
    let environment = environment().client_ip(proxy);
    let app = App::within(&limit("all", ONE, "\"client_ip\"", ""), environment);
    for (client, expected) in [
        ("198.51.100.1", 200),
        ("198.51.100.2", 200),
        ("198.51.100.1", 429),
    ] {
        let request = with(from("192.0.2.1"), "x-forwarded-for", client);
        assert_eq!(app.status(request).await, expected, "{client}");
    }
}
